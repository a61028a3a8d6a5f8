-- sliding_window (EQUAL_COUNT): hits in groups, of which it is known when they began; p + size * (groups in the window - 1) + hits <= limit.
-- The same steps as equal_count.rs of ratekeeper-core.
--
-- Parameters: 1 limit (of a strict one the most that is let in), 2 window, 3 tick (microseconds), 4 width, 5 size of a group.
--   A width says how far apart the beginnings of two groups can be (gone: never both in the window) and how many
--   distances there are: 0 4194303 and 8, 1 65535 and 11, 2 2047 and 16, 3 255 and 22.
-- State: B form, I6 tick at which the newest group began; form 4: I2 p, its hits, and I2 size; 5: I7 and I7; below 4 groups
--   of one hit, and the form is the width (2 above). Then the distances, newest first, without those at the end that have
--   left: width 0 I3, 1 I2, 3 I1; 2 I1 below 240, else 240 + the rest / 256 and its remainder.
-- s1 bytes of the distances, s2 tick of the newest group, s3 p, s4 groups in the window.
--@ check EQUAL_COUNT
local form, length = byte(raw), #raw
local head = form == 4 and 11 or form == 5 and 21 or 7
if form and (form > 5 or length < head or form < 2 and (length - head) % (3 - form) > 0) then
  raw = -1
elseif form and form >= 2 and form ~= 3 and byte(raw, length) >= 240 then
  -- The last distance must have both its bytes.
  while head < length do
    head = head + (byte(raw, head + 1) >= 240 and 2 or 1)
  end
  if head > length then
    raw = -1
  end
end
--@ gone EQUAL_COUNT
if now - taken_at >= a2 or taken_at - now > a2 then
  hits = 0
end
--@ read EQUAL_COUNT
s2, s3, s4 = 0, 0, 0
local used, own = 0, a4
if raw and #raw >= 7 then
  local width, size, at, tick, clock = nil, 1, 8, a3, now
  width, s2 = unpack_('<BI6', raw)
  s3 = 1
  if width == 4 then
    s3, size, at = unpack_('<HH', raw, 8)
    width = 2
  elseif width == 5 then
    s3, size, at = unpack_('<I7I7', raw, 8)
    width = 2
  end
  local gone = width == 2 and 2047 or width == 0 and 4194303 or width == 1 and 65535 or 255
  if width ~= own then
    tick = tick_of(max(32, ceil(a2 / (gone - 2))))
  end
  local began = max(0, s2 - 1) * tick + 1
  if began > now then
    if s2 > ceil((now + a2) / tick) then
      -- A clock that was wrong by more than a window.
      s2, settle = ceil(now / tick), true
    else
      clock = began
    end
  end
  local reach = s2 - floor((clock - a2) / tick)
  if reach > 0 then
    s4 = 1
    if #raw >= at then
      s1 = {byte(raw, at, -1)}
      local age, next_byte, last = 0, 1, #s1
      while next_byte <= last do
        --= distance
        age = age + distance
        if age >= reach then
          break
        end
        s4, next_byte = s4 + 1, next_byte + 1
      end
    end
    used = s3 + size * (s4 - 1)
  end
end
room = a1 - used
--@ charge EQUAL_COUNT
local own = a4
local width, size, tick, tail = own, a5, a3, ''
local slots = width == 2 and 16 or width == 0 and 8 or width == 1 and 11 or 22
if s4 == 0 then
  -- Empty: started over, in the form of this limit.
  s3 = 0
  if hits > 0 then
    local taken = min(hits, MOST)
    local more = floor((taken - 1) / size)
    s2, s3 = ceil(now / tick), taken - more * size
    tail = string.rep('\0', min(more, slots) * (width == 0 and 3 or width == 1 and 2 or 1))
  end
else
  local at = 8
  width, size = byte(raw), 1
  if width == 4 then
    width, size, at = 2, unpack_('<H', raw, 10)
  elseif width == 5 then
    width, size, at = 2, unpack_('<I7', raw, 15)
  end
  local gone = width == 2 and 2047 or width == 0 and 4194303 or width == 1 and 65535 or 255
  slots = width == 2 and 16 or width == 0 and 8 or width == 1 and 11 or 22
  if width ~= own then
    tick = tick_of(max(32, ceil(a2 / (gone - 2))))
  end
  local count, next_byte = min(s3 + size * (s4 - 1), MOST), 1
  local regroups = hits > 0 and (width ~= own or size ~= a5) and (size * slots + 1 < a1 or size > 2 * a5)
  -- How many of the oldest distances are read: all in the window, those of the groups given back, or none.
  local steps = regroups and s4 - 1 or hits < 0 and -hits < count and -hits >= s3 and floor((-hits - s3) / size) + 1 or 0
  local ages = {}
  for step = 1, steps do
    --= distance
    next_byte = next_byte + 1
    ages[step] = distance + (ages[step - 1] or 0)
  end
  if regroups then
    -- Counted off from the newest hit on, into groups that begin where that of their oldest hit did.
    local needed, since, step, starts = (count - 1) % a5 + 1, min(s3, count), 0, {}
    s3 = needed
    local most = own == 2 and 17 or own == 0 and 9 or own == 1 and 12 or 23
    while needed <= count and #starts < most do
      while since < needed do
        step = step + 1
        since = min(since + size, count)
      end
      local start = s2 - (ages[step] or 0)
      if width ~= own then
        -- A coarser tick has been rounded up beyond now, which no beginning was.
        start = ceil(min(start * tick, max(now, max(0, s2 - 1) * tick + 1)) / a3)
      end
      starts[#starts + 1] = start
      needed = needed + a5
    end
    s1, s2, width, size, tick, slots = {}, starts[1], own, a5, a3, most - 1
    gone = width == 2 and 2047 or width == 0 and 4194303 or width == 1 and 65535 or 255
    for step = 2, #starts do
      local distance = starts[step - 1] - starts[step]
      if width == 2 and distance >= 240 then
        s1[#s1 + 1] = 240 + floor((distance - 240) / 256)
        distance = (distance - 240) % 256
      end
      s1[#s1 + 1] = distance % 256
      if width < 2 then
        s1[#s1 + 1] = floor(distance / 256) % 256
        if width == 0 then
          s1[#s1 + 1] = floor(distance / 65536)
        end
      end
    end
    raw, at = string.char(unpack(s1)), 1
  end
  if hits > 0 then
    local total = min(s3 + hits, MOST)
    local begun = total > size and floor((total - 1) / size) or 0
    s3 = total - begun * size
    if begun == 0 then
      tail = string.sub(raw, at)
    else
      local start = max(ceil(now / tick), s2)
      local distance, left = min(start - s2, gone), slots - begun
      s2 = start
      if left >= 0 then
        if width == 2 and distance >= 240 then
          tail = string.char(240 + floor((distance - 240) / 256), (distance - 240) % 256)
        elseif width >= 2 then
          tail = string.char(distance)
        else
          tail = pack(width == 0 and '<I3' or '<H', distance)
        end
        local age, last = distance, s1 and #s1 or 0
        next_byte = 1
        while left > 0 and next_byte <= last and age < gone do
          --= distance
          age, left, next_byte = age + distance, left - 1, next_byte + 1
        end
        if next_byte > 1 then
          tail = tail .. string.sub(raw, at, at + next_byte - 2)
        end
      end
      if begun > 1 then
        local zeros = min(begun - 1, slots)
        tail = string.rep('\0', zeros * (width == 0 and 3 or width == 1 and 2 or 1)) .. tail
      end
    end
  elseif -hits >= count then
    s3 = 0
  else
    -- Given back: the newest, and with them the beginnings of their groups.
    s2, s3 = s2 - (ages[steps] or 0), s3 + steps * size + hits
    tail = string.sub(raw, at + next_byte - 1)
  end
end
if s3 == 0 then
  value, expiry = '', now
else
  --= form
  expiry = s2 * tick + a2
end
--@ distance
-- The distance that begins at next_byte, which is left at its last byte.
local distance = s1[next_byte]
if width == 2 then
  if distance >= 240 then
    next_byte = next_byte + 1
    distance = (distance - 240) * 256 + 240 + s1[next_byte]
  end
elseif width < 2 then
  next_byte = next_byte + 1
  distance = distance + s1[next_byte] * 256
  if width == 0 then
    next_byte = next_byte + 1
    distance = distance + s1[next_byte] * 65536
  end
end
--@ form
-- The state with a beginning, hits and the bytes of distances.
if size == 1 then
  value = pack('<BI6', width, s2) .. tail
elseif size < 65536 then
  value = pack('<BI6HH', 4, s2, s3, size) .. tail
else
  value = pack('<BI6I7I7', 5, s2, s3, size) .. tail
end
