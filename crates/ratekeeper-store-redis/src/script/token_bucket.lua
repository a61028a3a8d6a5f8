-- token_bucket (4): burst - deficit >= hits, after the refill.
--
-- Parameters: 1 burst, 2 T, the time one token takes, in units of 1 / scale microseconds; 3 scale, a power of 2.
-- State: I7 deficit in whole tokens, I7 the time up to which it has been refilled (microseconds), and I4 its fraction
--   in 2^-32 of one, left out where it is 0.
-- s1 deficit, s2 time, s3 its fraction in units.
--@ read 4
s1, s2, s3 = 0, now, 0
if raw and #raw >= 14 then
  local deficit, since = unpack_('<I7I7', raw)
  local part = #raw >= 18 and ceil(unpack_('<I4', raw, 15) * a3 / FRACTION) or 0
  local refilled = 0
  if deficit > a1 or since > now then
    -- The burst was lowered, or the clock went back.
    settle = true
    refilled = floor(max(0, (now - since) * a3 - part) / a2)
    local kept = max(0, deficit - refilled)
    if kept > a1 or kept == 0 or since > now then
      s1, since = min(kept, a1), nil
    else
      s1 = kept
    end
  else
    local whole = deficit * a2
    local rest = whole % a3 + part
    local left = (since + (whole - whole % a3) / a3 - now) * a3 + rest
    if left <= 0 then
      since = nil
    else
      refilled = max(0, deficit - ceil(min(left, a1 * a2) / a2))
      s1 = deficit - refilled
    end
  end
  if since then
    local moved = refilled * a2
    local rest = moved % a3 + part
    s2 = since + (moved - moved % a3) / a3 + floor(rest / a3)
    s3 = rest % a3
  end
end
room = a1 - s1
--@ charge 4
s1 = max(0, s1 + hits)
if s1 > a1 then
  s1, s2, s3 = a1, now, 0
end
if s3 == 0 then
  value = pack('<I7I7', s1, s2)
else
  value = pack('<I7I7I4', s1, s2, s3 * (FRACTION / a3))
end
local whole = s1 * a2
expiry = s2 + (whole - whole % a3) / a3 + ceil((whole % a3 + s3) / a3)
