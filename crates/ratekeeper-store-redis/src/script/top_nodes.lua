-- Lists the nodes that have laid out their top keys lately.
--
-- KEYS[1]  a sorted set of nodes by the time (microseconds) at which each last laid out its list
-- ARGV[1]  milliseconds after which a node is gone
-- ARGV[2]  the most nodes to list
-- returns  pairs of a node's name and the milliseconds since then, and the number of nodes left out
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local since = string.format('%.0f', now - ARGV[1] * 1000)
local found = redis.call('ZRANGEBYSCORE', KEYS[1], since, '+inf', 'WITHSCORES', 'LIMIT', 0, ARGV[2])
local nodes = {}
for at = 1, #found, 2 do
  nodes[#nodes + 1] = {found[at], math.max(0, math.floor((now - found[at + 1]) / 1000))}
end
return {nodes, redis.call('ZCOUNT', KEYS[1], since, '+inf') - #nodes}
