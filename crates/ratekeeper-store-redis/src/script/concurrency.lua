-- concurrency (CONCURRENCY): permits held + hits <= limit.
--
-- Parameters: 1 limit, 2 timeout of a permit (microseconds).
-- State: a sorted set of permits with their deadlines (microseconds). A permit's name is its id; one without an id
--   ends at its deadline alone, and is called "/" and a number. Returned is how many are held; where the group has a
--   permit, twice that, plus 1 if it is one of them.
-- A permit that ends more than two timeouts from now was taken before the clock went back: it ends as one taken now.
-- s1 permits held, s2 1 if the group's is one of them.
-- The key lives at least until its last permit ends, whatever the timeouts of the others are.
-- Commands: besides the count, permits are looked up, moved and reaped, O(log n) each; and PTTL before the life is set.
--@ gone CONCURRENCY
hits = 0
--@ read CONCURRENCY
s1, s2 = raw or 0, 0
if act > 0 then
  s2 = s1 % 2
  s1 = (s1 - s2) / 2
end
room = a1 - s1
if room < 1 and s1 > 0 and call('ZCOUNT', key, format('(%.0f', now + 2 * a2), '+inf') > 0 then
  settle = true
end
--@ charge CONCURRENCY
expiry = now + a2
local deadline = format('%.0f', expiry)
if settle then
  for _, member in ipairs(call('ZRANGEBYSCORE', key, format('(%.0f', now + 2 * a2), '+inf')) do
    call('ZADD', key, 'XX', deadline, member)
  end
end
if act == 0 then
  local number = s1
  for _ = 1, min(max(hits, 0), max(0, a1 - s1)) do
    s1 = s1 + 1
    while call('ZADD', key, 'NX', deadline, '/' .. number) == 0 do
      number = number + 1
    end
  end
elseif act == 3 then
  call('ZREM', key, permit)
  s1, s2 = s1 - s2, 0
elseif s2 == 1 then
  call('ZADD', key, 'XX', 'GT', deadline, permit)
elseif act == 1 and hits > 0 and s1 < a1 then
  call('ZADD', key, deadline, permit)
  s1, s2 = s1 + 1, 1
end
call('ZREMRANGEBYSCORE', key, '-inf', format('%.0f', now))
if act < 3 and s1 > 0 then
  --= expire
end
value = act > 0 and s1 * 2 + s2 or s1
