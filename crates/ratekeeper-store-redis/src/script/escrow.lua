-- Leases that are open on a counter: hits that nodes may admit without asking, held but not charged yet.
--
-- A counter of an algorithm that is leased, while some lease is open on it:
--   B 254, B number of leases (1 to 64), I7 earliest and I7 latest end, I6 sum of the amounts, then each lease:
--   c8 node, I6 number of its last call, I6 hits it has reported spent, I4 amount, I7 end; then the algorithm's state,
--   which may be empty. No state of these algorithms begins with 254.
-- The script takes room less what is held. A lease that is over is charged in full, dated at its end.
-- 254 is 255 less the version of this format. A value of a later version, and any other that is not read, becomes -1: it
-- is neither decided by nor written over.
--@ open
-- From raw as it was read: raw the state (-1 if it cannot be read), held the sum of the amounts, tail all before the state
-- and latest its last end, and settle if leases were charged or shortened. For a node's own call: own its lease, taken
-- out, and live the others, of which the first ends at first_end.
local over
if raw and byte(raw) == 254 and (code == FIXED_WINDOW or code == CALENDAR_WINDOW or code == SUB_WINDOWS
  or code == EQUAL_COUNT or code == TOKEN_BUCKET) then
  local count, earliest = byte(raw, 2) or 0, MOST
  local first = 23 + 31 * count
  if count < 1 or count > 64 or #raw < first - 1 then
    raw = -1
  else
    earliest, latest, held = unpack_('<I7I7I6', raw, 3)
    if not node and now < earliest and latest <= now + 10000000 then
      tail, raw = sub(raw, 1, first - 1), sub(raw, first)
    else
      over = {}
      live, earliest, latest, held = {}, MOST, 0, 0
      for place = 23, first - 1, 31 do
        local entry, amount, ends = sub(raw, place, place + 30), unpack_('<I4I7', raw, place + 20)
        if ends > now + 10000000 then
          -- Of a clock that has gone back.
          ends, settle = now + 10000000, true
          entry = sub(entry, 1, 24) .. pack('<I7', ends)
        end
        if sub(entry, 1, 8) == node then
          own, repeated = entry, own ~= nil or repeated
        elseif ends <= now then
          over[#over + 1] = {ends, amount}
        else
          live[#live + 1], held = entry, held + amount
          earliest, latest = min(earliest, ends), max(latest, ends)
        end
      end
      raw = repeated and -1 or sub(raw, first)
      settle, first_end = settle or #over > 0, earliest
      if #live > 0 and not node then
        tail = pack('<BBI7I7I6', 254, #live, earliest, latest, held) .. table.concat(live)
      end
    end
  end
end
if raw and raw ~= -1 then
  --@ check
end
if raw == -1 then
  settle = false
elseif over then
  table.sort(over, function(one, other)
    return one[1] < other[1]
  end)
  for index = 1, #over do
    local ends, hits = over[index][1], over[index][2]
    -- Within its fixed window any time is the same, and a window that is over takes nothing.
    local is_fixed = code == FIXED_WINDOW or code == CALENDAR_WINDOW
    local now, room, settle, s1, s2, s3, s4, value, expiry = is_fixed and now or ends
    --@ read
    if not is_fixed or ends > s2 then
      --@ charge
      raw = value
    end
  end
end
--@ seal
-- The value with its leases, kept for as long as if all that is held were charged at the last end.
if tail then
  value, expiry = tail .. value, max(expiry, latest)
  if code == TOKEN_BUCKET then
    expiry = expiry + ceil(held * a2 / a3) + 1
  elseif code == SUB_WINDOWS then
    expiry = max(expiry, latest + a4 + a2)
  elseif code == EQUAL_COUNT then
    expiry = max(expiry, latest + a2 + ceil(a2 / 64) + 64)
  end
end
