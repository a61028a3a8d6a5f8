-- Puts a secret where there is none, unless another node has just done so.
--
-- KEYS[1]  where it is to lie
-- ARGV[1]  the secret
-- returns  what lies there afterwards: a secret, of 16 bytes or 24 with its time, or what a later version wrote
local there = redis.pcall('GET', KEYS[1])
if type(there) == 'string' and (#there == 16 or #there == 24 or string.sub(there, 1, 9) == 'hash-key ') then
  return there
end
redis.call('SET', KEYS[1], ARGV[1])
return ARGV[1]
