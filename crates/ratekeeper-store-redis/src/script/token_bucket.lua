-- token_bucket and gcra (TOKEN_BUCKET): burst - deficit >= hits, after the refill.
--
-- Parameters: 1 burst, 2 T, the time one token takes, in units of 1 / scale microseconds; 3 scale, a power of 2; 4 the most
--   tokens that can be missing: the burst, and the debt of a post-paid limit.
-- State: an integer, at * 1000 + deficit: what is missing in whole tokens, below 1000, and the time of the last charge
--   (microseconds), up to which the bucket has been refilled. Else I7 deficit, I7 since, the time up to which it has been
--   refilled, I7 at, and I4 the fraction of since in 2^-32 of a microsecond, left out where it is 0; big endian, so that the
--   first byte is no digit.
-- A deficit above the burst was made under a larger one, and stays. A time towards the next token that is longer than T
--   was a slower rate's, and starts over. A time of the last charge that is later than now by more than the time to fill was
--   written before the clock went back, and becomes now.
-- s1 deficit, s2 since, s3 its fraction in units, s4 at.
--@ check TOKEN_BUCKET
if #raw > 0 and (byte(raw) < 48 and #raw ~= 21 and #raw ~= 25 or byte(raw) >= 48 and not find(raw, '^%d%d%d%d+$')) then
  raw = -1
end
--@ read TOKEN_BUCKET
s1, s2, s3, s4 = 0, now, 0, now
if raw then
  local deficit, since, part, charged = 0, 0, 0, 0
  if (byte(raw) or 0) >= 48 then
    since, deficit = string.match(raw, '^(%d+)(%d%d%d)$')
    since, deficit = tonumber(since) or 0, tonumber(deficit) or 0
    charged = since
  elseif #raw == 21 or #raw == 25 then
    deficit, since, charged = unpack_('>I7I7I7', raw)
    if #raw == 25 then
      part = ceil(unpack_('>I4', raw, 22) * a3 / FRACTION)
    end
  end
  if deficit > 0 then
    local back = charged - now
    if back > ceil(a1 * a2 / a3) then
      since, charged, settle = max(0, since - back), now, true
    end
    local towards_next = (charged - since) * a3 - part
    if towards_next < 0 or towards_next >= a2 then
      since, part = charged, 0
    end
    if deficit > a1 then
      deficit = min(deficit, floor(MOST / a2))
    end
    local whole = deficit * a2
    local rest = whole % a3
    local left = ((whole - rest) / a3 - (now - since)) * a3 + rest + part
    if left > 0 then
      s1 = min(deficit, ceil(left / a2))
      local moved = (deficit - s1) * a2
      rest = moved % a3 + part
      s2 = since + (moved - moved % a3) / a3 + floor(rest / a3)
      s3 = rest % a3
      s4 = max(charged, now)
    end
  end
end
room = a1 - s1
--@ charge TOKEN_BUCKET
if hits > 0 and s1 + hits <= a4 then
  s1 = s1 + hits
elseif hits > 0 and s1 <= a4 then
  -- Emptied, along with the fraction of the next token.
  s1, s2, s3 = a4, s4, 0
elseif hits < 0 then
  s1 = max(0, s1 + hits)
end
if s1 == 0 then
  s2, s3, s4 = now, 0, now
end
if s1 < 1000 and s2 == s4 and s3 == 0 then
  value = format('%.0f%03.0f', s4, s1)
elseif s3 == 0 then
  value = pack('>I7I7I7', s1, s2, s4)
else
  value = pack('>I7I7I7I4', s1, s2, s4, s3 * (FRACTION / a3))
end
--= full
--@ lasts TOKEN_BUCKET
--= full
--@ full
-- The time from which nothing is missing any more, at this rate.
local whole = s1 * a2
expiry = s2 + (whole - whole % a3) / a3 + ceil((whole % a3 + s3) / a3)
