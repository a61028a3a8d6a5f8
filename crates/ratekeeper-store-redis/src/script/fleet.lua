-- Reports the requests that a node has in flight, and adds up those of all other nodes.
--
-- KEYS[1]  a sorted set of nodes by the time (microseconds) of their last report
-- KEYS[2]  a sorted set of nodes by the requests of their last report
-- ARGV[1]  the node's name
-- ARGV[2]  its requests in flight
-- returns  the number of all nodes that reported in the last 2 seconds, and the requests of the others among them
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local function before(microseconds)
  return string.format('%.0f', now - microseconds)
end
redis.call('ZADD', KEYS[1], before(0), ARGV[1])
redis.call('ZADD', KEYS[2], ARGV[2], ARGV[1])
for _, gone in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', before(10000000))) do
  redis.call('ZREM', KEYS[1], gone)
  redis.call('ZREM', KEYS[2], gone)
end
local nodes, others = 0, 0
for _, node in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], before(2000000), '+inf')) do
  nodes = nodes + 1
  if node ~= ARGV[1] then
    others = others + (tonumber(redis.call('ZSCORE', KEYS[2], node)) or 0)
  end
end
redis.call('PEXPIRE', KEYS[1], 10000)
redis.call('PEXPIRE', KEYS[2], 10000)
return {nodes, others}
