-- Writing at the time that ARGV[2] says (microseconds), for tests and replay: counters outlive their
-- expiry by an hour, since the server's clock does not follow.
--@ clock
local now = tonumber(ARGV[2])
--@ set
call('SET', key, value, 'PX', 3600000 + max(1, ceil((expiry - now) / 1000)))
--@ extend
local left = try('PTTL', key)
if type(left) == 'number' and left >= 0 and (left + 1 - 3600000) * 1000 < expiry - now then
  try('PEXPIRE', key, 3600000 + ceil((expiry - now) / 1000))
end
--@ expire
-- Never sooner than before: another permit may have a longer timeout.
local life, left = 3600000 + max(1, ceil((expiry - now) / 1000)), try('PTTL', key)
if type(left) ~= 'number' or left < life then
  call('PEXPIRE', key, life)
end
