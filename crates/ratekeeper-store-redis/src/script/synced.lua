-- Adds what is new of a node's totals to the counts of one counter's (sub-)windows, each hit once.
--
-- KEYS     for each (sub-)window: its count, and a hash with the marks of the nodes. In a cluster all lie in one slot.
-- ARGV[1]  the node, then for each (sub-)window: the number of the addition, the node's total, and for how many
--          milliseconds both keys are kept; separated by spaces
-- returns  both numbers of TIME, then for each (sub-)window: its count, and the number in the node's mark before and after
--
-- A mark is `number total`: the node's last addition. Where it is not, or the count is no integer, a later version wrote it:
-- -1 is returned for the count, and nothing is written there. A count and its marks live together: if one of them is gone, so is
-- the other, and the nodes' next additions bring the totals back.
local call, find = redis.call, string.match
local words = string.gmatch(ARGV[1], '%S+')
local node, time = words(), call('TIME')
local answer = { tonumber(time[1]), tonumber(time[2]) }
for at = 1, #KEYS, 2 do
  local counted, marks = KEYS[at], KEYS[at + 1]
  local number, total, kept = tonumber(words()), tonumber(words()), words()
  local count, mark = call('GET', counted), call('HGET', marks, node)
  if count and not mark and find(count, '^%d+$') and call('EXISTS', marks) == 0 then
    call('DEL', counted)
    count = false
  end
  mark = count and mark
  local before, had = 0, 0
  if mark then
    before, had = find(mark, '^(%d+) (%-?%d+)$')
    before, had = tonumber(before), tonumber(had)
  end
  local sum = count and tonumber(find(count, '^%d+$')) or not count and 0
  if not sum or not before then
    sum, before, had, number = -1, 0, total, 0
  end
  local after = before
  local new = total - had
  if number > before and (new ~= 0 or (count and not mark)) then
    if not count then
      call('DEL', marks)
    end
    if new ~= 0 then
      sum = call('INCRBY', counted, string.format('%.0f', new))
      if sum < 0 then
        sum = call('INCRBY', counted, string.format('%.0f', -sum))
      end
    end
    call('HSET', marks, node, string.format('%.0f %.0f', number, total))
    after = number
    if not count then
      call('PEXPIRE', counted, kept)
    end
    if not mark then
      call('PEXPIRE', marks, kept)
    end
  end
  answer[#answer + 1] = sum
  answer[#answer + 1] = before
  answer[#answer + 1] = after
end
return answer
