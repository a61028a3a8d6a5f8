-- Enters a node into the list of those that lease counters, and counts them.
--
-- KEYS[1]  a sorted set of nodes by the time (microseconds) at which each last entered itself
-- ARGV[1]  the node's name
-- returns  the number of nodes of the last 3 seconds
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
redis.call('ZADD', KEYS[1], string.format('%.0f', now), ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('%.0f', now - 10000000))
redis.call('PEXPIRE', KEYS[1], 10000)
return redis.call('ZCOUNT', KEYS[1], string.format('%.0f', now - 3000000), '+inf')
