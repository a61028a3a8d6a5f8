-- sliding_window with sub_windows (SUB_WINDOWS): current + (k - 1) full + oldest * (1 - f) + hits <= limit, over k sub-windows.
-- The same steps as sub_windows.rs of ratekeeper-core.
--
-- Parameters: 1 limit, 2 length of a sub-window (microseconds), 3 k, 4 window.
-- State: B width, I6 index of the newest sub-window since the epoch, then the counts from the newest to the oldest,
--   each of so many bytes, zeros at the end left out.
-- Counts of more than a window from now were made before the clock went back: the newest are those of the current
--   sub-window.
-- s1 counts, s2 index of the current sub-window, s3 sub-windows since the newest of the state.
--@ check SUB_WINDOWS
local width = byte(raw)
if width and (width ~= 1 and width ~= 2 and width ~= 4 and width ~= 7 or #raw < 8 or (#raw - 7) % width > 0) then
  raw = -1
end
--@ gone SUB_WINDOWS
if now - taken_at >= a4 or taken_at - now > a4 then
  hits = 0
end
--@ read SUB_WINDOWS
s2 = floor(now / a2)
local elapsed = now - s2 * a2
s1, s3 = nil, 0
local used = 0
if raw and #raw > 7 then
  local width, kept = unpack_('<BI6', raw)
  if width == 1 then
    s1 = {byte(raw, 8, -1)}
  else
    s1 = {unpack_('<' .. string.rep('I' .. width, floor((#raw - 7) / width)), raw, 8)}
    s1[#s1] = nil
  end
  s3 = s2 - kept
  if s3 < -a3 then
    s3, settle = 0, true
  elseif s3 < 0 then
    s2, s3, elapsed = kept, 0, 0
  end
  if s3 <= a3 then
    local last = a3 - s3
    for lane = 1, min(last, #s1) do
      used = used + s1[lane]
    end
    local oldest = s1[last + 1]
    if oldest and oldest > 0 then
      local product = oldest * (a2 - elapsed)
      if product <= MOST then
        used = used + ceil(product / a2)
      else
        used = used + min(oldest, ceil(product / a2 * (1 + 1 / 1125899906842624)))
      end
    end
  end
end
room = a1 - used
--@ charge SUB_WINDOWS
local lanes = {}
if s1 and s3 == 0 then
  lanes = s1
elseif s1 and s3 <= a3 then
  for lane = 1, s3 do
    lanes[lane] = 0
  end
  for lane = 1, min(#s1, a3 + 1 - s3) do
    lanes[s3 + lane] = s1[lane]
  end
end
-- A post goes where its hits were admitted.
local into = dated and max(1, min(s2 - floor(dated / a2), a3) + 1) or 1
for lane = #lanes + 1, into - 1 do
  lanes[lane] = 0
end
local count = lanes[into] or 0
lanes[into] = max(0, min(count + hits, MOST))
if hits < 0 then
  local refund = max(0, -hits - count)
  for lane = 2, min(a3, #lanes) do
    local older = lanes[lane]
    lanes[lane] = max(0, older - refund)
    refund = max(0, refund - older)
  end
end
local last, largest = 1, 0
for lane = 1, #lanes do
  if lanes[lane] > 0 then
    last, largest = lane, max(largest, lanes[lane])
  end
end
if largest < 256 then
  value = pack('<BI6', 1, s2) .. string.char(unpack(lanes, 1, last))
else
  local width = largest < 65536 and 2 or largest < 4294967296 and 4 or 7
  value = pack('<BI6' .. string.rep('I' .. width, last), width, s2, unpack(lanes, 1, last))
end
expiry = (s2 + a3 + 1) * a2
