-- Reading, at whatever time `now` is.
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
