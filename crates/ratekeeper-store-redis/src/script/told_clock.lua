-- Reading and writing at the time that ARGV[2] says (microseconds), for tests and replay: counters outlive their
-- expiry by an hour, since the server's clock does not follow.
--@ clock
local now = tonumber(ARGV[2])
--@ get
if code == CONCURRENCY then
  raw = try('ZCOUNT', key, format('(%.0f', now), '+inf')
  if act > 0 and type(raw) == 'number' then
    local deadline = call('ZSCORE', key, permit)
    raw = raw * 2 + (deadline and tonumber(deadline) > now and 1 or 0)
  end
else
  raw = try('GET', key)
end
if type(raw) == 'table' then
  -- Something else than a counter lies there: those of other groups are none the worse for it.
  raw = -1
end
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
