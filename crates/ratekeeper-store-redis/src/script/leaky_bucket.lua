-- leaky_bucket, where callers wait for any turn (LEAKY_BUCKET), and where they wait for so long or not at all (LEAKY_WITHIN):
-- new = max(now, TAT) + hits * T is allowed iff new - now <= burst * T; in the last one also only if TAT - now <= longest.
--
-- Parameters: 1 T, the time one hit takes, in units of 1 / scale microseconds; 2 burst * T; 3 scale, a power of 2;
--   4 of the last one: the longest wait, in the units of T. Nothing is given back of a longer queue, unless it is 0.
-- State: I7 TAT, the next free turn, and I7 the time of the last charge (microseconds), and I4 the fraction of TAT in 2^-32 of
--   a microsecond, left out where it is 0; big endian.
-- A queue longer than burst * T was made under a larger burst, and stays. One that was last charged later than now by more
--   than burst * T was written before the clock went back: it is moved to now.
-- s1 units from s2 to TAT, s2 the time of the last charge, or now if that is later.
--@ check LEAKY_BUCKET LEAKY_WITHIN
if #raw > 0 and (#raw ~= 14 and #raw ~= 18 or byte(raw) >= 128) then
  raw = -1
end
--@ read LEAKY_BUCKET LEAKY_WITHIN
s1, s2 = 0, now
if raw and (#raw == 14 or #raw == 18) then
  local tat, charged = unpack_('>I7I7', raw)
  local fraction = #raw == 18 and unpack_('>I4', raw, 15) or 0
  local back = charged - now
  if back > ceil(a2 / a3) then
    tat, charged, settle = max(0, tat - back), now, true
  end
  s2 = max(charged, now)
  if tat >= s2 then
    s1 = (tat - s2) * a3 + ceil(fraction * a3 / FRACTION)
  end
end
room = floor((a2 - s1) / a1)
if code == LEAKY_WITHIN and (s2 - now) * a3 + s1 > a4 then
  room = min(room, 0)
end
--@ charge LEAKY_BUCKET LEAKY_WITHIN
if code == LEAKY_WITHIN and hits < 0 and a4 > 0 and (s2 - now) * a3 + s1 > a4 then
  -- Others have turns behind what is given back.
  hits = 0
end
if hits < 0 then
  s1 = max(0, s1 + hits * a1)
else
  s1 = max(s1, min(s1 + hits * a1, a2))
end
local rest = s1 % a3
local tat = s2 + (s1 - rest) / a3
if rest == 0 then
  value = pack('>I7I7', tat, s2)
  expiry = tat
else
  value = pack('>I7I7I4', tat, s2, rest * (FRACTION / a3))
  expiry = tat + 1
end
