-- gcra, and leaky_bucket where callers wait for any turn (5), leaky_bucket where they wait for so long or not at all (8):
-- new = max(now, TAT) + hits * T is allowed iff new - now <= burst * T; in the last one also only if TAT - now <= longest.
--
-- Parameters: 1 T, the time one hit takes, in units of 1 / scale microseconds; 2 burst * T; 3 scale, a power of 2;
--   4 of leaky_bucket (8): the longest wait, in the units of T. Nothing is given back of a longer queue, unless it is 0.
-- State: the theoretical arrival time in microseconds, an integer; "TAT fraction" with the fraction in 2^-32 of a
--   microsecond where there is one.
-- s1 units from now to TAT.
--@ read 5 8
s1 = 0
if raw then
  local tat, fraction = tonumber(raw), 0
  if not tat then
    tat, fraction = string.match(raw, '^(%d+) (%d+)$')
    tat, fraction = tonumber(tat) or 0, tonumber(fraction) or 0
  end
  if tat >= now then
    s1 = tat - now
    if s1 > a2 / a3 then
      s1, settle = a2, true
    else
      s1 = s1 * a3 + ceil(fraction * a3 / FRACTION)
      if s1 > a2 then
        s1, settle = a2, true
      end
    end
  end
end
room = floor((a2 - s1) / a1)
if code == 8 and s1 > a4 then
  room = 0
end
--@ charge 5 8
if code == 8 and hits < 0 and a4 > 0 and s1 > a4 then
  -- Others have turns behind what is given back.
  hits = 0
end
s1 = max(0, min(s1 + hits * a1, a2))
local rest = s1 % a3
local tat = now + (s1 - rest) / a3
if rest == 0 then
  value = format('%.0f', tat)
  expiry = tat
else
  value = format('%.0f %.0f', tat, rest * (FRACTION / a3))
  expiry = tat + 1
end
