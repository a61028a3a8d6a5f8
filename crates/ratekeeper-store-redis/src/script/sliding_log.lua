-- sliding_log (SLIDING_LOG): hits in (now - window, now] + hits <= limit.
--
-- Parameters: 1 limit, 2 window (microseconds).
-- State: I2 sum of all hits kept, big endian, then for each moment I7 time and I2 hits, oldest first. Where no request of a lone
--   step was or could be told more, the moments between the oldest and the newest are returned as one.
-- Hits of more than a window from now were made before the clock went back: all move, the newest to now.
-- s1 hits in the window, s2 where the first moment lies that is in it, s3 the time that counts, s4 the newest moment.
--@ check SLIDING_LOG
if #raw > 0 and (#raw % 9 ~= 2 or byte(raw) >= 128) then
  raw = -1
end
--@ gone SLIDING_LOG
if now - taken_at >= a2 or taken_at - now > a2 then
  hits = 0
end
--@ read SLIDING_LOG
s1, s2, s3, s4 = 0, 3, now, nil
if raw and #raw >= 11 then
  s1, s4 = unpack_('>H', raw), unpack_('<I7', raw, #raw - 8)
  if s4 - now > a2 then
    local moved = {string.sub(raw, 1, 2)}
    for place = 3, #raw - 8, 9 do
      local time, hits = unpack_('<I7H', raw, place)
      moved[#moved + 1] = pack('<I7H', max(0, time - s4 + now), hits)
    end
    raw, s4, settle = table.concat(moved), now, true
  end
  s3 = max(now, s4)
  while s2 < #raw do
    local time, gone = unpack_('<I7H', raw, s2)
    if time + a2 > s3 then
      break
    end
    s1 = s1 - gone
    s2 = s2 + 9
  end
end
room = a1 - s1
--@ answer SLIDING_LOG
-- What is to be told: when the hits that make room for the largest denied one leave, and when the newest does.
if raw and #raw - s2 > 450 and not settle then
  local need, gone, last = most + max(0, s1 - a1), 0, s2
  while gone < need and last < #raw - 17 do
    local _, more = unpack_('<I7H', raw, last)
    gone = gone + more
    last = last + 9
  end
  if last < #raw - 17 then
    local newest, newest_hits = unpack_('<I7H', raw, #raw - 8)
    local middle = unpack_('<I7', raw, last)
    out[known] = pack('>H', s1) .. string.sub(raw, s2, last - 1)
      .. pack('<I7HI7H', middle, s1 - gone - newest_hits, newest, newest_hits)
  end
end
--@ charge SLIDING_LOG
local more = min(max(hits, 0), a1)
local excess = max(0, s1 + more - max(a1, s1))
local kept, sum, part = '', s1, ''
if raw and #raw >= 11 then
  -- The oldest make room. However many they are, the log is cut once: each cut copies it.
  local place = s2
  while excess > 0 and place < #raw do
    local time, oldest = unpack_('<I7H', raw, place)
    local taken = min(excess, oldest)
    excess, sum, place = excess - taken, sum - taken, place + 9
    if taken < oldest then
      part = pack('<I7H', time, oldest - taken)
    end
  end
  kept = string.sub(raw, place)
  if #part > 0 then
    kept = part .. kept
  end
end
if more > 0 and dated and dated < s3 then
  -- A post goes where its hits were admitted: before the first moment that is later.
  local place = 1
  while place < #kept and unpack_('<I7', kept, place) <= dated do
    place = place + 9
  end
  sum = sum + more
  kept = string.sub(kept, 1, place - 1) .. pack('<I7H', dated, more) .. string.sub(kept, place)
elseif more > 0 then
  sum = sum + more
  if #kept > 0 and s4 == s3 then
    local _, newest = unpack_('<I7H', kept, #kept - 8)
    kept, more = string.sub(kept, 1, -10), more + newest
  end
  kept = kept .. pack('<I7H', s3, more)
end
local refund, last = max(0, -hits), #kept
part = ''
while refund > 0 and last > 0 do
  local time, newest = unpack_('<I7H', kept, last - 8)
  local taken = min(refund, newest)
  refund, sum, last = refund - taken, sum - taken, last - 9
  if taken < newest then
    part = pack('<I7H', time, newest - taken)
  end
end
if last < #kept then
  kept = string.sub(kept, 1, last) .. part
end
value = pack('>H', sum) .. kept
expiry = #kept > 0 and unpack_('<I7', kept, #kept - 8) + a2 or now
