-- Counters of which regions lend each other parts for a time: LENT_BUCKET, a TOKEN_BUCKET, and LENT_COUNT, an EQUAL_COUNT.
--
-- Parameters: 1 the hits that this region owns, 2 window (microseconds), 5 generation of the region;
--   LENT_BUCKET: 3 the hits of the whole limit, 4 its burst; LENT_COUNT: 3 the tick of width 2, that of most shares.
-- They count as the algorithm does whose parameters a share of the limit has. The state of a bucket is that under the share
-- which was in force when it was last charged. A share that becomes smaller by itself, as a loan is over, lowers what is
-- missing; any other change of a share resizes the bucket.
--@ params
-- The algorithm and its parameters: as core's Limit::holding.
local window, numbers = lent[2], nil
if code == LENT_BUCKET then
  local burst = lent[3] == lent[4] and share or floor(lent[4] * share / lent[3])
  numbers = {0, window, 1, 0, 0}
  for bits = 0, burst > 0 and 32 or -1, 1 do
    local scaled = window * 2 ^ bits
    local interval = ceil(scaled / share)
    if (interval * share - scaled) * 1000 <= scaled then
      numbers = {burst, interval, 2 ^ bits, burst, 0}
      break
    end
  end
  code = TOKEN_BUCKET
else
  local width, size = 2, 1
  if share <= 9 then
    width = 0
  elseif share <= 12 then
    width = 1
  elseif share > 17 and share <= 23 then
    width = 3
  elseif share > 23 then
    size = ceil((share - 1) / 16)
  end
  local tick = lent[3]
  if width ~= 2 then
    local gone = width == 0 and 4194303 or width == 1 and 65535 or 255
    tick = tick_of(max(32, ceil(window / (gone - 2))))
  end
  numbers = {share, window, tick, width, size}
  code = EQUAL_COUNT
end
if flat then
  return code, unpack(numbers)
end
return code, numbers
--@ lower
-- Reads no more of the state than it needs: it is one, as it was checked.
local deficit, since, charged, fraction = 0, 0, 0, ''
if (byte(raw) or 0) >= 48 then
  since, deficit = string.match(raw, '^(%d+)(%d%d%d)$')
  since, deficit = tonumber(since) or 0, tonumber(deficit) or 0
  charged = since
elseif #raw >= 21 then
  deficit, since, charged = unpack_('>I7I7I7', raw)
  fraction = sub(raw, 22)
end
local _, over = timed_share(kept, lent[1], lent[5], charged)
if over == 0 or deficit == 0 then
  return raw
end
local _, before = lent_params(LENT_BUCKET, lent, share + over)
local _, after = lent_params(LENT_BUCKET, lent, share)
return pack('>I7I7I7', max(0, deficit - (before[1] - after[1])), since, charged) .. fraction
--@ resize
-- From the share that is in force to that of the loans after: the level stays, but for tokens.
local _, b1, b2, b3, b4 = lent_params(lent_code, lent, timed_share(after, lent[1], lent[5], 0), true)
local missing, accrued = s1, (s4 - s2) * a3 - s3
s1 = max(0, s1 + b1 - a1 + tokens)
s2, s3 = s4, 0
if missing > 0 and s1 > 0 then
  accrued = max(0, floor(accrued / a2 * b2) - 1)
  s3 = (b3 - accrued % b3) % b3
  s2 = s4 - ceil(accrued / b3)
  if s2 < 0 then
    s2, s3 = 0, 0
  end
end
a1, a2, a3, a4 = b1, b2, b3, b4
