-- Lays out the list of a node's top keys.
--
-- KEYS[1]  a sorted set of nodes by the time (microseconds) at which each last laid out its list
-- KEYS[2]  the list of this node
-- ARGV[1]  the node's name
-- ARGV[2]  its list
-- ARGV[3]  milliseconds after which the list is gone
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
redis.call('SET', KEYS[2], ARGV[2], 'PX', ARGV[3])
redis.call('ZADD', KEYS[1], string.format('%.0f', now), ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('%.0f', now - ARGV[3] * 1000))
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return redis.status_reply('OK')
