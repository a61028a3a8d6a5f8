-- Decides any number of independent groups of requests, each atomically, in one call.
--
-- KEYS     the counters, in the order in which the groups' steps name them; one that a group names twice is here
--          twice. After them the keys with the loans of those that regions lend (of a post, if they are for a time), or with what
--          regions have posted of those that they count together. After those of a group that is carried out once, and after the counter of a lease or a post, the
--          key that remembers it; then, if it undoes another that was, the key to forget. In a cluster all of them lie in one slot.
-- ARGV[1]  the groups, one after the other, packed as by struct.pack('<...'); numbers are doubles (d) below 2^53.
--
--   a lone step:  B 1, B algorithm, H runs, 5 x d parameters, then for each run: I4 requests, d hits.
--                 The hits are positive, and charged if they fit.
--   any steps:    B 2, B mode (1 shadow, 2 idle quota, 4 denied elsewhere), B 1 if the group is plain,
--                 B extras (1 permit, 2 once, 4 taken at, 8 forget), H steps, H runs;
--                 permit: c16 id, B act (1 acquire, 2 renew, 3 release); once: d until (below 0: so long from now), c8 content; taken at: d time;
--                 for each step:  B algorithm, B flags (1 charged always, 2 shadow, 4 quota mode, 8 the first step of
--                                 its descriptor, 16 post-paid, 32 of that as far as there is room), 5 x d parameters;
--                 for each run:   I4 requests, then for each step d hits.
--                 Plain: no counter twice, all hits positive, no step charged always, none in quota mode.
--
--   a lease:      B 3, B algorithm, 5 x d parameters, c8 node, d number of the call, d number of the first call of its
--                 session, d hits that the session has spent, B 1 if the node holds nothing any more, d hits it wants to
--                 hold (0: it ends its lease), d the most that a lease holds, d the time that it lasts.
--                 Of a counter that regions lend, a lease holds a sixteenth of the share at most, too.
--                 What the node has spent since its last call is charged, and hits are held for it as far as there is
--                 room: half of what would then be left. An older call than the last one changes nothing.
--   a post:       B 5, B algorithm, B 1 if post-paid, 5 x d parameters, d hits, d age, d time for which it is remembered.
--                 Hits that were admitted so long ago without asking here: charged as far as there is room, or in full.
--
--   Regions that are silent, of a FIXED_WINDOW that regions count together: B how many, and for each d its number, d its share.
--   They follow the parameters of any steps, and the rest of a lease.
--
--   a total:      B 7, B algorithm, 5 x d parameters, d number of the region that posts it, d window, d total.
--                 Kept beside a counter that regions count together, unless it is for a window that is over, or for a later one than
--                 the next; the larger total of a region counts. Returned is what is returned for loans.
--
--   loans:        B 6, B algorithm, 5 x d parameters, d window, d the most that may be counted in it, d the tokens that leave a
--                 bucket (below 0: that come to it), d time for which they are kept, I4 and I4 length of the loans that were
--                 read before and of those to put in their place, and both.
--                 They are written if those before are still there, in that window (0: whenever), with no more counted or
--                 missing; a bucket is then resized to its new share. None: only read.
--
--   A group is one list of steps, asked for by requests that differ in their hits only; a run is so many requests of
--   the same hits, in the order in which they came. The parameters are explained in each algorithm's file.
--   Algorithms are named in capitals here, as in script/algorithm.rs, which puts their numbers in place of the names.
--
-- Returned: the time that counted (microseconds since the epoch), then for each group
--   if it is carried out once: 0; or the time at which it was before, followed by what was returned then; or alone -1,
--   if another request was carried out under its id, or the same one by other steps, or -2, if it is too late to know whether it was;
--   the state of each step's counter, and of one that regions lend the share, as it was before the group (null if there was none; see the algorithms; -1 if
--   something lies there that is no counter: then nothing of the group is carried out, and no other group is the worse
--   for it); and for each run how many of its requests were allowed (a lone step: how many fitted).
--   for a lease: the state before; 2 if all that the node holds now is new, 1 if some was held before, 0 if it is an older
--   call, or -1 if the key holds something else; the hits that it holds, and for how long; of a counter that regions lend, the share, and the time until
--   a part of it ends (0 if none does, or it ends with its window).
--   for loans: 1 if they were written, 0 if not, -1 if a key holds something else; the hits counted in the window, or missing
--   in a bucket, the window's number, the time until it ends (both 0 where loans last for a time), the generation of the
--   region, and the loans as they were before (null if there were none).
--   for a post: the hits that were charged, those of the first time if it is a repeat, or -1 if a key holds something else.
-- A state is told with the leases that are open on it; see escrow.lua. A denial writes nothing, but where leases that were
-- over have been charged. By a limit that refills a bucket later than the one that it was last charged by, as after a change
-- of the rules, its key is kept for as long as that takes: else the bucket would be full before the caller comes back.
-- From states and time the caller computes what is left and when to come back, by the same steps.
--
-- Commands: TIME once, and for each step a read, and a write with its expiry unless the request is denied; PTTL where a bucket denies and where
-- permits are held.

local call, try, byte, unpack_, pack = redis.call, redis.pcall, string.byte, struct.unpack, struct.pack
local floor, ceil, min, max, format, sub, find = math.floor, math.ceil, math.min, math.max, string.format, string.sub, string.find
local MOST, FRACTION = 9007199254740991, 4294967296
local plan = ARGV[1]

-- The tick of a sliding window whose counter has another width than its limit: the smallest divisor of a second that is
-- at least so long, or just that if it is longer than a second.
local function tick_of(least)
  local best, fives = least > 1000000 and least or 1000000, 1
  while fives <= 15625 do
    local tick = fives
    while tick <= 64 * fives do
      if tick >= least and tick < best then
        best = tick
      end
      tick = tick * 2
    end
    fives = fives * 5
  end
  return best
end

--@ clock
local out, filled, next_key, at, size = {now}, 1, 1, 1, #plan
local act, permit = 0, nil
-- What regions have lent each other of a counter, or have posted of it, by its key, while the group that asks for it is decided.
local loans = {}

-- The loans kept at a key, of a counter of this algorithm: false if there are none, -1 if something else lies there. See
-- core's region::loans.
local function loans_at(key, code)
  local found = try('GET', key)
  if found and (type(found) ~= 'string' or byte(found) ~= (code == FIXED_WINDOW and 1 or 2)) then
    return -1
  end
  return found
end

-- The totals kept at a key, of a counter that regions count together: false if there are none, -1 if something else lies
-- there. See core's region::counted.
local function totals_at(key)
  local found = try('GET', key)
  if found and (type(found) ~= 'string' or byte(found) ~= 3 or #found ~= 2 + 21 * (byte(found, 2) or 0)) then
    return -1
  end
  return found
end

-- The regions that are silent, as the plan has them from there on, and where it goes on.
local function silent_at(place)
  local silent = {}
  local count, after = unpack_('<B', plan, place)
  for index = 1, count do
    local region, share
    region, share, after = unpack_('<dd', plan, after)
    silent[index] = {region, share}
  end
  return silent, after
end

-- What other regions are taken to have used of a window: what they posted, or the share of one that is silent, if that is
-- more.
local function used_of(silent, kept, window)
  local used, posted = 0, {}
  for place = 3, kept and 21 * byte(kept, 2) or 0, 21 do
    local region, first, total = unpack_('<I7I7I7', kept, place)
    if first == window then
      used, posted[region] = used + total, total
    end
  end
  for _, it in ipairs(silent) do
    used = used + max(0, it[2] - (posted[it[1]] or 0))
  end
  return used
end

-- The share of a region that owns so much, in a window: what is owned, less what is lent, and what is held.
local function share_of(kept, owned, window)
  local lent, held
  for place = 3, 21 * byte(kept, 2), 21 do
    local first, less, more = unpack_('<I7I7I7', kept, place)
    if lent and first > window then
      break
    end
    lent, held = less, more
  end
  return max(0, owned - lent) + held
end

-- The share that is held for a time, in a generation of the region, and what was held besides later than `since`.
local function timed_share(kept, owned, generation, since)
  if not kept then
    return owned, 0
  end
  local places = 3 + 14 * byte(kept, 2)
  local lent, stamp = unpack_('<I7I7', kept, places)
  local held, over = 0, 0
  for place = 3, places - 14, 14 do
    local until_, amount = unpack_('<I7I7', kept, place)
    if stamp == generation and until_ > now then
      held = held + amount
    elseif (stamp == generation and until_ or min(until_, generation)) > since then
      over = over + amount
    end
  end
  return max(0, owned - lent) + held, over
end

-- The first end of what is held, in a generation of the region; 0 if nothing is.
local function first_end_of(kept, generation)
  local first = 0
  local places = kept and 3 + 14 * byte(kept, 2) or 0
  if kept and select(2, unpack_('<I7I7', kept, places)) == generation then
    -- Earlier ends come first.
    for place = places - 14, 3, -14 do
      local until_ = unpack_('<I7', kept, place)
      if until_ > now then
        first = until_
      end
    end
  end
  return first
end

-- The parameters of a limit while a region holds a share of it: those that core computes for it. See lent.lua.
local function lent_params(code, lent, share, flat)
  --@ params
end

-- The state of a bucket that was charged before a loan was over: what it is missing, less by what was then lost.
local function lowered(raw, kept, lent, share)
  --@ lower
end

-- When the hits of a post were admitted, while it is charged.
local dated

while at <= size do
  if byte(plan, at) == 1 then
    local _, code, runs, a1, a2, a3, a4, a5
    _, code, runs, a1, a2, a3, a4, a5, at = unpack_('<BBHddddd', plan, at)
    local key = KEYS[next_key]
    next_key = next_key + 1
    local raw, room, settle, s1, s2, s3, s4
    local node, own, live, repeated, tail, latest, first_end
    local held = 0
    --@ get
    local known, told = filled + 1, raw
    --@ open
    out[known] = raw == -1 and raw or told
    filled = known
    if raw == -1 then
      room = -1
    else
      --@ read
      room = room - held
    end
    local hits, most = 0, 0
    for _ = 1, runs do
      local requests, each
      requests, each, at = unpack_('<I4d', plan, at)
      local passed = 0
      if each <= room then
        passed = min(requests, floor(room / each))
        hits = hits + passed * each
        room = room - passed * each
      end
      if passed < requests then
        most = max(most, each)
      end
      filled = filled + 1
      out[filled] = passed
    end
    if raw ~= -1 then
      --@ answer
    end
    if hits > 0 or settle then
      local value, expiry
      --@ charge
      if code ~= CONCURRENCY then
        --@ seal
        --@ set
      end
    elseif most > 0 and raw and raw ~= -1 then
      local value, expiry = '', nil
      --@ lasts
      if expiry then
        --@ seal
        --@ extend
      end
    end
  elseif byte(plan, at) == 5 then
    local _, code, is_full, a1, a2, a3, a4, a5, hits, age, kept
    _, code, is_full, a1, a2, a3, a4, a5, hits, age, kept, at = unpack_('<BBBdddddddd', plan, at)
    local key, share, lent, kept_loans = KEYS[next_key], nil, nil, false
    if code >= LENT_BUCKET then
      next_key = next_key + 1
      lent, kept_loans = {a1, a2, a3, a4, a5}, loans_at(KEYS[next_key], code)
      share = timed_share(kept_loans ~= -1 and kept_loans, a1, a5, 0)
      code, a1, a2, a3, a4, a5 = lent_params(code, lent, share, true)
    end
    local once = KEYS[next_key + 1]
    next_key = next_key + 2
    local record, charged = try('GET', once), -1
    if type(record) == 'string' then
      charged = tonumber(record) or -1
    elseif not record then
      local raw, room, settle, s1, s2, s3, s4, value, expiry
      local node, own, live, repeated, tail, latest, first_end
      local held = 0
      --@ get
      --@ open
      if lent and code == TOKEN_BUCKET and raw and raw ~= -1 and kept_loans and kept_loans ~= -1 then
        raw = lowered(raw, kept_loans, lent, share)
      end
      if raw ~= -1 and kept_loans ~= -1 then
        local taken_at = max(0, now - age)
        --@ gone
        --@ read
        if is_full == 0 then
          hits = max(0, min(hits, floor(room - held)))
        end
        charged = hits
        if hits > 0 then
          dated = taken_at
          --@ charge
          --@ seal
          --@ set
          dated = nil
        end
        key, value, expiry = once, format('%.0f', charged), now + kept
        --@ set
      end
    end
    filled = filled + 1
    out[filled] = charged
  elseif byte(plan, at) == 6 then
    local _, code, a1, a2, a3, a4, a5, window, most, tokens, kept, old, new
    _, code, a1, a2, a3, a4, a5, window, most, tokens, kept, old, new, at = unpack_('<BBdddddddddI4I4', plan, at)
    local before, after = sub(plan, at, at + old - 1), sub(plan, at + old, at + old + new - 1)
    at = at + old + new
    local key, place = KEYS[next_key], KEYS[next_key + 1]
    next_key = next_key + 2
    local raw, room, settle, s1, s2, s3, s4, value, expiry
    local node, own, live, repeated, tail, latest, first_end
    local held, status, count, lent, lent_code = 0, -1, 0, nil, code
    local share, found
    if code == FIXED_WINDOW and a5 > 1 then
      found, a5 = totals_at(place), {}
    else
      found = loans_at(place, code)
    end
    if code >= LENT_BUCKET then
      lent = {a1, a2, a3, a4, a5}
      share, window = timed_share(found ~= -1 and found, a1, a5, 0), nil
      code, a1, a2, a3, a4, a5 = lent_params(code, lent, share, true)
    end
    --@ get
    --@ open
    if lent and code == TOKEN_BUCKET and raw and raw ~= -1 and found and found ~= -1 then
      raw = lowered(raw, found, lent, share)
    end
    if raw ~= -1 and found ~= -1 then
      --@ read
      status, count = 0, (lent and a1 - room or s1) + held
      -- What nodes hold ends before the share that it is of.
      local share_end = lent and tail and new > 0 and first_end_of(after, lent[5]) or 0
      local is_held = share_end == 0 or latest < share_end
      if new > 0 and (found or '') == before and (not window or s2 / a2 == window) and count <= most and is_held then
        status = 1
        if code == TOKEN_BUCKET then
          --@ resize
          local hits = 0
          --@ charge
          --@ seal
          --@ set
        end
        key, value, expiry = place, after, now + kept
        --@ set
      end
    end
    out[filled + 1], out[filled + 2] = status, count
    out[filled + 3], out[filled + 4], out[filled + 5], out[filled + 6] = 0, 0, lent and lent[5] or 0, found
    if not lent and s2 then
      out[filled + 3], out[filled + 4] = s2 / a2, max(0, s2 + a2 - now)
    end
    filled = filled + 6
  elseif byte(plan, at) == 7 then
    local _, code, a1, a2, a3, a4, a5, region, window, total
    _, code, a1, a2, a3, a4, a5, region, window, total, at = unpack_('<BBdddddddd', plan, at)
    local key, place = KEYS[next_key], KEYS[next_key + 1]
    next_key, a5 = next_key + 2, {}
    local raw, room, settle, s1, s2, s3, s4, value, expiry
    local node, own, live, repeated, tail, latest, first_end
    local held, status, count, found, counted = 0, -1, 0, totals_at(place), 0
    --@ get
    --@ open
    if raw ~= -1 and found ~= -1 then
      --@ read
      status, count, counted = 0, s1 + held, s2 / a2
      local entries, is_new = {}, true
      for spot = 3, found and 21 * byte(found, 2) or 0, 21 do
        local there, first, most = unpack_('<I7I7I7', found, spot)
        if there == region and first == window then
          is_new, most = false, max(most, total)
        end
        if first >= counted then
          entries[#entries + 1] = pack('<I7I7I7', there, first, most)
        end
      end
      if is_new and total > 0 and #entries < 64 then
        entries[#entries + 1], is_new = pack('<I7I7I7', region, window, total), false
      end
      if (not is_new or total == 0) and window >= counted and window <= counted + 1 then
        status = 1
        -- No hits are as much as no word of them, and not written.
        if not is_new then
          key, value, expiry = place, pack('<BB', 3, #entries) .. table.concat(entries), s2 + 2 * a2
          --@ set
        end
      end
    end
    out[filled + 1], out[filled + 2], out[filled + 3] = status, count, counted
    out[filled + 4], out[filled + 5], out[filled + 6] = s2 and max(0, s2 + a2 - now) or 0, 0, found
    filled = filled + 6
  elseif byte(plan, at) == 3 then
    local _, code, a1, a2, a3, a4, a5, node, number, since, spent, final, target, most, ttl
    _, code, a1, a2, a3, a4, a5, node, at = unpack_('<BBdddddc8', plan, at)
    number, since, spent, final, target, most, ttl, at = unpack_('<dddBddd', plan, at)
    local key, is_lent, share, share_end = KEYS[next_key], code >= LENT_BUCKET or code == FIXED_WINDOW and a5 > 0, 0, 0
    next_key = next_key + 1
    if code == FIXED_WINDOW and a5 > 1 then
      loans[key] = totals_at(KEYS[next_key])
      a5, at = silent_at(at)
      next_key = next_key + 1
    elseif is_lent then
      loans[key] = loans_at(KEYS[next_key], code)
      next_key = next_key + 1
    end
    if code >= LENT_BUCKET then
      local kept = loans[key] ~= -1 and loans[key]
      share, share_end = timed_share(kept, a1, a5, 0), first_end_of(kept, a5)
      code, a1, a2, a3, a4, a5 = lent_params(code, {a1, a2, a3, a4, a5}, share, true)
      -- It ends before the share does.
      if share_end > 0 then
        ttl = min(ttl, share_end - 1 - now)
        target = ttl > 0 and target or 0
      end
    end
    local raw, room, settle, s1, s2, s3, s4, value, expiry
    local own, live, repeated, tail, latest, first_end
    local held = 0
    --@ get
    if is_lent and loans[key] == -1 then
      raw = -1
    end
    local told, status, amount, ends, left = raw, 2, 0, now, 0
    --@ open
    local last, reported, owned, ended
    if own then
      last, reported, owned, ended = unpack_('<I6I6I4I7', own, 9)
    end
    if raw == -1 then
      told, status = -1, -1
    elseif own and number <= last then
      status = 0
    else
      live = live or {}
      for pass = 1, 2 do
        local hits = 0
        --@ read
        if is_lent then
          share = code == FIXED_WINDOW and room + s1 or share
          most = min(most, floor(share / 16))
        end
        if pass == 2 then
          local all = held + left
          local want = min(target, most) - left
          local more = min(want, floor((max(0, floor(room)) - 2 * all) / 2))
          if target > 0 and #live < 64 and left + more >= 4 and more >= min(1, want) then
            amount, ends = left + max(0, more), now + ttl
            if code == FIXED_WINDOW or code == CALENDAR_WINDOW then
              ends = min(ends, s3)
            end
          elseif left > 0 and ended > now then
            amount, ends = left, ended
          else
            -- It may have been spent since the call was made.
            hits = left
          end
        elseif own and (ended > s2 or code ~= FIXED_WINDOW and code ~= CALENDAR_WINDOW) then
          if last < since then
            -- Of an earlier session, which will not be reported.
            hits = owned
          else
            hits = min(max(0, spent - reported), owned)
            status, left = 1, final == 1 and 0 or owned - hits
          end
        end
        --@ charge
        raw = value
      end
      if amount > 0 then
        live[#live + 1], held = node .. pack('<I6I6I4I7', number, spent, amount, ends), held + amount
        first_end, latest = min(first_end or MOST, ends), max(latest or 0, ends)
      end
      if #live > 0 then
        tail = pack('<BBI7I7I6', 254, #live, first_end, latest, held) .. table.concat(live)
      end
      if own or settle or amount > 0 then
        --@ seal
        --@ set
      end
    end
    out[filled + 1], out[filled + 2], out[filled + 3], out[filled + 4] = told, status, amount, ends - now
    filled = filled + 4
    if is_lent then
      out[filled + 1], out[filled + 2] = share, max(0, share_end - now)
      filled = filled + 2
    end
  else
    local _, mode, plain, extras, steps, runs, until_, content, taken_at
    _, mode, plain, extras, steps, runs, at = unpack_('<BBBBHH', plan, at)
    if extras % 2 == 1 then
      permit, act, at = unpack_('<c16B', plan, at)
    end
    if floor(extras / 2) % 2 == 1 then
      until_, content, at = unpack_('<dc8', plan, at)
      if until_ < 0 then
        until_ = now - until_
      end
    end
    if floor(extras / 4) % 2 == 1 then
      taken_at, at = unpack_('<d', plan, at)
    end
    local codes, flags, params, first = {}, {}, {}, next_key
    for step = 1, steps do
      local a1, a2, a3, a4, a5
      codes[step], flags[step], a1, a2, a3, a4, a5, at = unpack_('<BBddddd', plan, at)
      if codes[step] == FIXED_WINDOW and a5 > 1 then
        a5, at = silent_at(at)
      end
      params[step] = {a1, a2, a3, a4, a5}
    end
    next_key = first + steps
    local shares, lents = {}, {}
    for step = 1, steps do
      local code, key = codes[step], KEYS[first + step - 1]
      if code == FIXED_WINDOW and type(params[step][5]) == 'table' then
        loans[key] = totals_at(KEYS[next_key])
        next_key = next_key + 1
      elseif code >= LENT_BUCKET or code == FIXED_WINDOW and params[step][5] > 0 then
        loans[key] = loans_at(KEYS[next_key], code)
        next_key = next_key + 1
      end
      if code >= LENT_BUCKET then
        local lent, kept = params[step], loans[key]
        shares[step], lents[step] = timed_share(kept ~= -1 and kept, lent[1], lent[5], 0), lent
        codes[step], params[step] = lent_params(code, lent, shares[step])
      end
    end
    local once = KEYS[next_key]
    if until_ then
      -- What was recorded can be read by the same steps only.
      content = content .. act .. ' ' .. table.concat(codes, ' ')
    end
    local start, done, corrupt, asked, requests = filled + 1, false, false, {}, {}
    for run = 1, runs do
      requests[run], at = unpack_('<I4', plan, at)
      local hits = {}
      for step = 1, steps do
        hits[step], at = unpack_('<d', plan, at)
      end
      asked[run] = hits
    end

    if until_ then
      local record = try('GET', KEYS[next_key])
      next_key = next_key + 1
      if record then
        local is_read = type(record) == 'string'
        if is_read then
          is_read, record = pcall(cmsgpack.unpack, record)
        end
        if not is_read or type(record) ~= 'table' or type(record[1]) ~= 'number' then
          corrupt = true
        elseif record[1] > now then
          done = true
          if record[2] ~= content then
            record = {0, 0, -1}
          end
          -- What was returned then, its time first.
          for index = 3, #record do
            filled = filled + 1
            out[filled] = record[index]
          end
        end
      end
      if not done then
        filled = filled + 1
        out[filled] = 0
        if until_ <= now then
          out[filled], done = -2, true
        end
      end
    end
    if extras >= 8 then
      if not done and not corrupt then
        call('DEL', KEYS[next_key])
      end
      next_key = next_key + 1
    end

    local raws, values, expiries, opened, is_allowed, asks, is_paid = {}, {}, {}, {}, false, false, false
    -- The time until which what denied is to be kept, by its key.
    local lasting = {}
    if done then
      runs = 0
    else
      for step = 1, steps do
        local key, code = KEYS[first + step - 1], codes[step]
        local raw = raws[key]
        local told = raw
        if raw == nil then
          local node, own, live, repeated, tail, latest, first_end, settle
          local held = 0
          --@ get
          told = raw
          if raw then
            local a1, a2, a3, a4, a5 = unpack(params[step])
            --@ open
            if shares[step] and code == TOKEN_BUCKET and loans[key] and loans[key] ~= -1 and raw == told then
              raw = lowered(raw, loans[key], lents[step], shares[step])
              told = raw
            end
          end
          if raw == -1 then
            told = raw
          elseif tail or settle then
            opened[key] = {told = told, held = held, tail = tail, latest = latest, settle = settle}
          end
          raws[key] = raw
        elseif opened[key] then
          told = opened[key].told
        end
        if loans[key] == -1 then
          raw, told = -1, -1
        end
        corrupt = corrupt or raw == -1
        filled = filled + 1
        out[filled] = told
        if shares[step] then
          filled = filled + 1
          out[filled] = shares[step]
        elseif code == FIXED_WINDOW and params[step][5] ~= 0 then
          filled = filled + 1
          out[filled] = 0
          if raw ~= -1 then
            local room, settle, s1, s2, s3, s4
            local a1, a2, a3, a4, a5 = unpack(params[step])
            --@ read
            out[filled] = room + s1
          end
        end
      end
    end
    if corrupt and not done then
      out[filled] = -1
      for _ = 1, runs do
        filled = filled + 1
        out[filled] = 0
      end
      runs, done = 0, true
    end
    for run = 1, runs do
      local passed, left, hits_of = 0, requests[run], asked[run]
      -- A plain run is taken at once as far as every request gets the same answer; any other request by request.
      while left > 0 do
        local fit, rooms, settles, taken, together = {}, {}, {}, {}, left
        for step = 1, steps do
          local code, hits, key = codes[step], hits_of[step], KEYS[first + step - 1]
          local a1, a2, a3, a4, a5 = unpack(params[step])
          local raw, room, settle, s1, s2, s3, s4 = raws[key], nil, nil, nil, nil, nil, nil
          if taken_at and hits < 0 then
            -- Hits that do not count any more are not given back.
            --@ gone
          end
          --@ read
          local before, lease, full = taken[key] or 0, opened[key], room
          if lease then
            room, settle = room - lease.held, settle or lease.settle
          end
          if act > 0 and code == CONCURRENCY then
            fit[step] = s2 == 1 or (act == 1 and (before > 0 or room >= 1))
          elseif flags[step] >= 16 then
            -- Charged in full, and answered as a look just before.
            fit[step] = hits < 0 or before + 1 <= room
          elseif hits > 0 then
            fit[step] = before + hits <= room
          elseif hits == 0 and code ~= CONCURRENCY then
            -- Overdrawn: denied hits were counted, or the limit was lowered.
            fit[step] = full >= 0 and (before <= full or code ~= FIXED_WINDOW and code ~= CALENDAR_WINDOW)
          else
            fit[step] = true
          end
          if hits > 0 and (fit[step] or flags[step] % 2 == 1) then
            taken[key] = before + hits
          end
          if raw and not fit[step] then
            local expiry
            --@ lasts
            lasting[key] = expiry and max(expiry, lasting[key] or 0)
          end
          rooms[step], settles[step] = room, settle
        end
        -- Denied by any enforced step, or by every descriptor in quota mode.
        local allowed, quotas, over, descriptor, counted, was_over = true, 0, 0, 0, -1, false
        for step = 1, steps do
          local flag = flags[step]
          local denies = not fit[step] and floor(flag / 2) % 2 == 0
          if flag % 16 >= 8 then
            descriptor = descriptor + 1
          end
          if floor(flag / 4) % 2 == 0 then
            allowed = allowed and not denies
          else
            if counted ~= descriptor then
              counted, was_over, quotas = descriptor, false, quotas + 1
            end
            if denies and not was_over then
              was_over, over = true, over + 1
            end
          end
        end
        if mode >= 4 or (over > 0 and over == quotas and mode < 2) then
          allowed = false
        end
        allowed = allowed or mode % 2 == 1
        if plain == 0 then
          together = 1
        elseif allowed then
          for step = 1, steps do
            if fit[step] then
              together = min(together, floor(rooms[step] / hits_of[step]))
            end
          end
        end
        is_allowed = is_allowed or allowed
        for step = 1, steps do
          local code, hits, key = codes[step], hits_of[step], KEYS[first + step - 1]
          local raw = raws[key]
          asks = asks or hits > 0
          is_paid = is_paid or hits > 0 and flags[step] >= 16 and flags[step] % 2 == 1
          if hits >= 0 and flags[step] % 2 == 0 then
            hits = (allowed and fit[step]) and hits * together or 0
          end
          local a1, a2, a3, a4, a5 = unpack(params[step])
          if taken_at and hits < 0 then
            --@ gone
          end
          -- The move of a counter after the clock went back is written in any case.
          local moves = hits ~= 0 or settles[step] or (act > 1 and code == CONCURRENCY)
          if moves and (raw or hits > 0) then
            local room, settle, s1, s2, s3, s4, value, expiry
            --@ read
            if flags[step] >= 32 then
              hits = min(hits, max(0, floor(room)))
            end
            --@ charge
            raws[key], values[key], expiries[key] = value, value, expiry
            if opened[key] then
              opened[key].settle = false
            end
          end
        end
        if allowed then
          passed = passed + together
        end
        left = left - together
      end
      filled = filled + 1
      out[filled] = passed
    end
    for step = 1, steps do
      local key = KEYS[first + step - 1]
      local value, lasts = values[key], lasting[key]
      if (value or lasts) and codes[step] ~= CONCURRENCY then
        local is_charged, expiry = value ~= nil, max(expiries[key] or 0, lasts or 0)
        value, values[key], expiries[key], lasting[key] = value or '', nil, nil, nil
        if opened[key] then
          local code, held, tail, latest = codes[step], opened[key].held, opened[key].tail, opened[key].latest
          local _, a2, a3, a4 = unpack(params[step])
          --@ seal
        end
        if is_charged then
          --@ set
        else
          --@ extend
        end
      end
    end
    if until_ and not done and (is_allowed or is_paid or not asks) then
      local record = {until_, content, now}
      for index = start + 1, filled do
        record[#record + 1] = out[index]
      end
      local key, value, expiry = once, cmsgpack.pack(record), until_
      --@ set
    end
    act = 0
  end
end
return out
