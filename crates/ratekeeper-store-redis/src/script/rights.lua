-- What the user of this connection may not do of all that is done to counters.
--
-- ARGV[1]  a key as counters have them
-- ARGV[2]  1 in a cluster
-- returns  the names of those commands; none as well where the server cannot tell (Redis 6.2)
local key, lacking = ARGV[1], {}
if not redis.acl_check_cmd then
  return lacking
end
local commands = {
  { 'EVALSHA', '0', '1', key },
  { 'TIME' },
  { 'GET', key },
  { 'SET', key, '0', 'PX', '1' },
  { 'DEL', key },
  { 'PEXPIRE', key, '1' },
  { 'PTTL', key },
  { 'EXISTS', key },
  { 'INCRBY', key, '1' },
  { 'HGET', key, 'x' },
  { 'HSET', key, 'x', '1' },
  { 'ZADD', key, '0', 'x' },
  { 'ZREM', key, 'x' },
  { 'ZCOUNT', key, '0', '1' },
  { 'ZSCORE', key, 'x' },
  { 'ZREMRANGEBYSCORE', key, '0', '1' },
  { 'ZRANGEBYSCORE', key, '0', '1' },
  { 'WAIT', '1', '1' },
}
if ARGV[2] == '1' then
  commands[#commands + 1] = { 'CLUSTER', 'SLOTS' }
  commands[#commands + 1] = { 'CLUSTER', 'INFO' }
  commands[#commands + 1] = { 'CLUSTER', 'NODES' }
  commands[#commands + 1] = { 'ASKING' }
end
for _, command in ipairs(commands) do
  if not redis.acl_check_cmd(unpack(command)) then
    lacking[#lacking + 1] = command[1]
  end
end
return lacking
