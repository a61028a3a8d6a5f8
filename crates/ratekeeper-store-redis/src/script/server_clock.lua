-- Writing at the server's own time.
--@ clock
local time = call('TIME')
local now = time[1] * 1000000 + time[2]
--@ set
call('SET', key, value, 'PX', max(1, ceil((expiry - now) / 1000)))
--@ extend
-- Fails for a user who may do either no longer: then the denial stands, and is not remembered.
local left = try('PTTL', key)
if type(left) == 'number' and left >= 0 and (left + 1) * 1000 < expiry - now then
  try('PEXPIRE', key, ceil((expiry - now) / 1000))
end
--@ expire
-- Never sooner than before: another permit may have a longer timeout.
local life, left = max(1, ceil((expiry - now) / 1000)), try('PTTL', key)
if type(left) ~= 'number' or left < life then
  call('PEXPIRE', key, life)
end
