-- fetch: leases ready tasks to a holder.
-- ARGV    worker id, incarnation, nonce, visibility ms, max, how many queues, and their names in the order of
--         preference, a line feed before and after each: one argument, for they may be a thousand.
-- Returns {now, groups, notes}; a group: {queue, priority, then for each task: id, entry, attempt, lease
--         number, name, payload, options}; options: '' or a list of pairs of fields m t i M b u.
-- Atomic  entry read, record running, lease granted, event; repeated with its nonce it grants
--         nothing new and returns what it granted. What must not run is dropped on the way.

local worker, incarnation, nonce = arg(), arg(), arg()
local visibility, max = tonumber(arg()), tonumber(arg())
local holder = worker .. '/' .. incarnation
local deadline = int(now + visibility)
local groups, granted, taken = {}, {}, 0

local group
local function in_group(queue, priority)
  if not group or group[1] ~= queue or group[2] ~= priority then
    group = { queue, priority }
    groups[#groups + 1] = group
  end
  return group
end

local function hand_over(r)
  in_group(r.q, r.y)
  leases_new[#leases_new + 1] = deadline
  leases_new[#leases_new + 1] = r.id
  granted[#granted + 1] = r.id
  granted[#granted + 1] = r.l
  taken = taken + 1
  local n = #group
  group[n + 1], group[n + 2], group[n + 3], group[n + 4] = r.id, r.e, r.a, r.l
  group[n + 5], group[n + 6], group[n + 7] = r.n, r.p, ''
  if r.more ~= '' or r.t or r.M or r.b or r.u or r.m ~= 5 then
    local options = { 'm', r.m }
    for _, name in ipairs({ 't', 'i', 'M', 'b', 'u' }) do
      if r[name] then push(options, name, r[name]) end
    end
    group[n + 7] = options
  end
end

local receipt = K.fetch .. incarnation
local before = call('GET', receipt)
if before and string.sub(before, 1, #nonce + 1) == nonce .. '\n' then
  records()
  for id, lease in string.gmatch(before, '(%w+) (%d+)') do
    local r = load_all(id)
    if r and r.s == RUNNING and r.l == tonumber(lease) and not damage(r) then hand_over(r) end
  end
  flush()
  return { now_text, groups, notes }
end

-- A task that is nothing but name, payload and defaults, and has never run: what `take` would do, without
-- a look at what it cannot have. False: it is not one.
local listened_to = is_listened_to()
local function take_plain(queue, id, entry, flat)
  if flat[1] ~= 's' or flat[3] ~= 'n' or flat[5] ~= 'p' or flat[7] ~= 'e' then return false end
  local name = flat[4]
  local slash = string.find(name, '/', 1, true)
  if slash then
    if string.sub(name, 1, slash - 1) ~= queue then return false end
    name = string.sub(name, slash + 1)
  elseif queue ~= 'default' then
    return false
  end
  call('HSET', K.task .. id, 's', FRESH_RUNNING, 'w', holder, 'o', now_text)
  local of, n = in_group(queue, 5), #leases_new
  leases_new[n + 1], leases_new[n + 2] = deadline, id
  n = #granted
  granted[n + 1], granted[n + 2] = id, '1'
  taken = taken + 1
  n = #of
  of[n + 1], of[n + 2], of[n + 3], of[n + 4] = id, entry, 1, 1
  of[n + 5], of[n + 6], of[n + 7] = name, flat[6], ''
  return true
end

-- What becomes of an entry: leased, dropped, or left alone.
local function take(queue, priority, stream, entry, fields)
  local id = fields[1] == 'i' and fields[2]
  if #fields ~= 2 then
    local f = {}
    for i = 1, #fields, 2 do f[fields[i]] = fields[i + 1] end
    records()
    if newer(f) then
      note(f.i, 'entry ' .. entry .. ' has the newer version ' .. f.v .. ' and is left alone')
      return
    end
    id = f.i
  end
  if not id or #id ~= 22 or string.find(id, '%W') then
    records()
    note(nil, 'quarantined: entry ' .. entry .. ' of queue ' .. queue .. ' names no task')
    bury(id, queue, nil, nil, nil, error_json('UndecodableEntry', 'the entry names no task'))
    return ack(stream, entry)
  end
  local flat = pcall_('HGETALL', task_key(id))
  if #flat == 8 and flat[2] == FRESH and flat[8] == entry and priority == 5 and not listened_to
    and take_plain(queue, id, entry, flat) then
    return
  end
  records()
  local r, why = from_flat(id, flat)
  if not r then
    note(id, 'quarantined: its record is ' .. why)
    bury(id, queue, nil, nil, nil, error_json('DamagedRecord', 'the record is ' .. why))
    ack(stream, entry)
    push(leases_gone, id)
    return
  end
  if newer(r) then
    note(id, 'its record has the newer version ' .. r.v .. ' and is left alone')
    return
  end
  if r.s and r.s >= SUCCEEDED then return ack(stream, entry) end
  if r.e and r.e ~= entry then
    ack(stream, entry)
    emit('TASK_DUPLICATE_ABSORBED', r, worker)
    return
  end
  if r.s == RUNNING then return end
  -- While it waits for its delay or backoff it has no entry: this is an old one that came again.
  if (r.s == PENDING or r.s == RETRYING) and not r.e
    and (call('ZSCORE', K.schedule, id) or call('ZSCORE', K.claimed, id)) then
    ack(stream, entry)
    emit('TASK_DUPLICATE_ABSORBED', r, worker)
    return
  end
  local broken = damage(r) or (not r.p and 'field p is missing') or (not r.e and 'field e is missing')
    or (r.s ~= QUEUED and 'its status is ' .. STATUS[r.s] .. ' but it stands in a queue')
  if broken then
    ack(stream, entry)
    if r.s == PENDING or r.s == RETRYING then unschedule(id, r.q) end
    return quarantine(r, broken, queue)
  end
  if r.c then return finish(r, CANCELLED) end
  if r.x and now >= r.x then return finish(r, EXPIRED) end
  r.l = r.l + 1
  if move(r, RUNNING, 'w', holder, 'o', now_text) then
    r.w = holder
    hand_over(r)
    emit('TASK_STARTED', r, worker)
  end
end

local function read(stream, n)
  local reply = pcall_('XREADGROUP', 'GROUP', 'workers', 'worker', 'COUNT', n, 'STREAMS', stream, '>')
  if type(reply) == 'table' and reply.err then
    if not string.find(reply.err, 'NOGROUP', 1, true) then
      note(nil, 'stream ' .. stream .. ' cannot be read: ' .. reply.err)
      return {}
    end
    -- Entries come again that are being run; their records say so and they are left alone.
    call('XGROUP', 'CREATE', stream, 'workers', '0')
    -- No news for a stream that is new, which still holds whatever was added to it.
    local info = call('XINFO', 'STREAM', stream)
    for i = 1, #info, 2 do
      if info[i] == 'entries-added' and info[i + 1] > call('XLEN', stream) then
        note(nil, 'stream ' .. stream .. ' had lost its group: created, reading from its start')
      end
    end
    reply = call('XREADGROUP', 'GROUP', 'workers', 'worker', 'COUNT', n, 'STREAMS', stream, '>')
  end
  return reply and reply[1] and reply[1][2] or {}
end

-- Whether a queue has entries that nobody has read yet, at one of these priorities.
local function left_behind(queue, priorities)
  for priority in string.gmatch(priorities, '%d') do
    local stream = stream_key(queue, priority)
    local length = pcall_('XLEN', stream)
    if type(length) == 'number' and length > 0 then
      local pending = pcall_('XPENDING', stream, 'workers')
      if pending.err or length > pending[1] then return true end
    end
  end
  return false
end

-- A script that drops very many entries would hold up everybody: the rest is for the next fetch.
local budget = 1000 + max
local full = false
local queues, names = tonumber(arg()), arg()

local function all_queues()
  local all = {}
  for queue in string.gmatch(names, '[^\n]+') do all[#all + 1] = queue end
  return all
end

-- The queues that may hold entries, in the order of preference. Of many queues most are empty, and cost
-- nothing: neither a look at their state nor a name of their own.
local function in_question()
  if queues <= 16 or call('HLEN', K.ready) > 2 * queues then
    local all = all_queues()
    ready(all)
    return all
  end
  local known = of_ready(pcall_('HGETALL', K.ready))
  for i = 1, #known, 2 do standing[known[i]] = known[i + 1] end
  if #known > 64 then return all_queues() end
  local found, places = {}, {}
  for i = 1, #known, 2 do
    local place = string.find(names, '\n' .. known[i] .. '\n', 1, true)
    if place then
      found[#found + 1] = known[i]
      places[known[i]] = place
    end
  end
  table.sort(found, function(a, b) return places[a] < places[b] end)
  return found
end

local function serve(queue)
  local priorities = standing[queue]
  if not priorities or priorities == '' then return end
  if full then
    -- A queue not reached may hold what its token announced to this very worker.
    if left_behind(queue, priorities) then wake(queue) end
    return
  end
  if call('EXISTS', K.queue .. queue .. ':paused') == 1 then return end
  for digit in string.gmatch(priorities, '%d') do
    local priority = tonumber(digit)
    local stream = stream_key(queue, digit)
    local length = full and 0 or pcall_('XLEN', stream)
    if type(length) ~= 'number' then
      note(nil, 'stream ' .. stream .. ' is not a stream')
      length = 0
    elseif length == 0 and not full then
      stands(queue, (string.gsub(standing[queue], digit, '')))
    end
    while length > 0 and not full do
      local want = math.min(max - taken, budget)
      local entries = read(stream, want)
      budget = budget - #entries
      for _, entry in ipairs(entries) do
        if entry[2] then take(queue, priority, stream, entry[1], entry[2]) else ack(stream, entry[1]) end
      end
      if #entries < want then length = 0 end
      full = taken >= max or budget <= 0
      if full and left_behind(queue, string.match(priorities, digit .. '.*')) then wake(queue) end
    end
  end
end
for _, queue in ipairs(in_question()) do serve(queue) end

-- Nothing came although somebody waits: now there is time to look whether a queue holds what it is not
-- known to hold (an entry written by hand, a lost key). A few queues a time, other ones each second.
if taken == 0 then
  local all = all_queues()
  local some = math.min(#all, 20)
  local from = math.floor(now / 1000) * some
  for i = 0, some - 1 do
    recall(all[(from + i) % #all + 1])
  end
end

if taken > 0 then
  call('SET', receipt, nonce .. '\n' .. table.concat(granted, ' '), 'PX', visibility)
end
flush()
return { now_text, groups, notes }
