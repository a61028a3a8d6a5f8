-- The generation of a region; see generation.rs. KEYS[1] keeps it, and the time at which a node last asked. ARGV: 1 if the node
-- has just started, 1 if it has seen the server's clock go back, and the step back that is tolerated in microseconds.
-- A new one begins if there is none, or the clock has gone back, or a node starts that no other could tell about the clock.
-- Returned: the generation and the time.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local kept = redis.call('GET', KEYS[1])
local generation, asked = string.match(kept or '', '^(%d+) (%d+)$')
generation, asked = tonumber(generation), tonumber(asked)
local is_over = not generation or ARGV[2] == '1' or asked - now > tonumber(ARGV[3])
if is_over or ARGV[1] == '1' and now - asked > 3000000 then
  generation = generation == now and now + 1 or now
end
redis.call('SET', KEYS[1], string.format('%.0f %.0f', generation, now))
return {generation, now}
