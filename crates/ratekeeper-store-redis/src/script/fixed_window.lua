-- fixed_window: count + hits <= limit, in windows aligned to the epoch (FIXED_WINDOW) or to a calendar (CALENDAR_WINDOW).
--
-- Parameters: 1 limit; 2 window (microseconds);
--   FIXED_WINDOW: 3 unit, the window; 4 span, what one unit of time weighs in the state; 5: 1 if regions lend each
--   other parts of the limit, which is then what this region owns; 2 if regions count it together, and then, once the plan is
--   read, the regions that are silent; or else 0;
--   CALENDAR_WINDOW: 3 start and 4 end of the calendar's window, 5 end of the next.
-- State: an integer, start / unit * span + count (of a calendar, a unit is a minute and a span 2^27); "count start" where that
--   does not fit below 2^53.
-- A count of more than a window from now was made before the clock went back: it is that of the current window.
-- s1 count, s2 start, s3 end of the window.
--@ check FIXED_WINDOW CALENDAR_WINDOW
if find(raw, '%D') and not find(raw, '^%d+ %d+$') then
  raw = -1
end
--@ gone FIXED_WINDOW
if taken_at < now - now % a2 or taken_at >= now - now % a2 + a2 then
  hits = 0
end
--@ gone CALENDAR_WINDOW
if now >= a4 and (taken_at < a4 or taken_at >= a5) or now < a4 and (taken_at < a3 or taken_at >= a4) then
  hits = 0
end
--@ read FIXED_WINDOW
s2 = now - now % a2
s3 = s2 + a2
s1 = 0
if raw then
  local word, kept = tonumber(raw), nil
  if word then
    s1 = word % a4
    kept = (word - s1) / a4 * a3
  else
    s1, kept = string.match(raw, '^(%d+) (%d+)$')
    s1, kept = tonumber(s1) or 0, tonumber(kept) or 0
  end
  if kept < s2 then
    s1 = 0
  elseif kept < s3 then
    s2 = kept
  elseif kept - now > a2 then
    settle = true
  else
    s2, s3 = kept, kept + a2
  end
end
room = a1 - s1
if a5 ~= 0 then
  if a5 ~= 1 then
    room = max(0, a1 - used_of(a5, loans[key], s2 / a2)) - s1
  elseif loans[key] then
    room = share_of(loans[key], a1, s2 / a2) - s1
  end
end
--@ charge FIXED_WINDOW
s1 = max(0, min(s1 + hits, MOST))
if s1 < a4 and s2 % a3 == 0 and s2 / a3 * a4 < MOST - s1 then
  value = format('%.0f', s2 / a3 * a4 + s1)
else
  value = format('%.0f %.0f', s1, s2)
end
expiry = s3
--@ read CALENDAR_WINDOW
if now >= a4 then
  s2, s3 = a4, a5
else
  s2, s3 = a3, a4
end
s1 = 0
if raw then
  local word, kept = tonumber(raw), nil
  if word then
    s1 = word % 134217728
    kept = (word - s1) / 134217728 * 60000000
  else
    s1, kept = string.match(raw, '^(%d+) (%d+)$')
    s1, kept = tonumber(s1) or 0, tonumber(kept) or 0
  end
  if kept < s2 then
    s1 = 0
  elseif kept < s3 then
    s2 = kept
  elseif kept - now > a2 then
    settle = true
  elseif kept < a5 then
    s2, s3 = kept, a5
  else
    s2, s3 = kept, kept + a2
  end
end
room = a1 - s1
--@ charge CALENDAR_WINDOW
s1 = max(0, min(s1 + hits, MOST))
if s1 < 134217728 and s2 % 60000000 == 0 and s2 / 60000000 < 67108863 then
  value = format('%.0f', s2 / 60000000 * 134217728 + s1)
else
  value = format('%.0f %.0f', s1, s2)
end
expiry = s3
