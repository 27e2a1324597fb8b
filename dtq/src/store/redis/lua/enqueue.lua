-- enqueue: accepts units of tasks.
-- ARGV    units, then for each: tasks, then for each task: id, name, queue, payload, pairs, then as many
--         pairs: y priority, m max attempts, t timeout, X ttl, i idempotency key, g its fingerprint, r R b
--         M as in the record; 'after' or 'at': when it is due. What equals its default is left out.
-- Returns for each unit: a list of 'new' | 'duplicate:<id>' for its tasks, or
--         {'!queue_full', queue, depth} {'!schedule_full', n} {'!in_progress', id} {'!mismatch', id}
--         {'!damaged', text}.
-- Atomic  check and add of a unit: admission, idempotency, record, entry or schedule, event. A unit
--         is all or nothing; a refused one leaves nothing behind.

-- Of the pairs, what becomes a field of the record as it is, and what needs more than that.
local AS_IT_IS = { y = true, m = true, t = true, r = true, R = true, b = true, M = true }

local units, keys, queues = {}, {}, {}
for u = 1, tonumber(arg()) do
  local unit = {}
  for i = 1, tonumber(arg()) do
    local t = { id = ARGV[at + 1], n = ARGV[at + 2], q = ARGV[at + 3], p = ARGV[at + 4], a = 1 }
    local pairs_ = ARGV[at + 5]
    at = at + 5
    if pairs_ ~= '0' then
      t.extra = {}
      for _ = 1, tonumber(pairs_) do
        local name, value = arg(), arg()
        t[name] = value
        if AS_IT_IS[name] then push(t.extra, name, value) end
      end
      t.due = tonumber(t.at) or (t.after and now + tonumber(t.after))
      if t.due and t.due <= now then t.due = nil end
    end
    unit[i] = t
    keys[#keys + 1] = K.task .. t.id
    if not queues[t.q] then queues[t.q] = true; push(queues, t.q) end
  end
  units[u] = unit
end

ready(queues)
local depths = {}
local function depth(queue)
  if not depths[queue] then
    local sum = 0
    for priority in string.gmatch(standing[queue], '%d') do
      local n = pcall_('XLEN', stream_key(queue, priority))
      if type(n) ~= 'number' then return nil end
      sum = sum + n
    end
    depths[queue] = sum
  end
  return depths[queue]
end

local scheduled
local function scheduled_now()
  scheduled = scheduled or call('ZCARD', K.schedule)
  return scheduled
end

-- A repeated enqueue finds its own records. One command tells the usual case, that there are none.
local repeated = call('EXISTS', unpack(keys)) > 0

local function check(unit)
  local adds, delayed, claimed = {}, 0, {}
  for _, t in ipairs(unit) do
    if repeated and call('EXISTS', K.task .. t.id) == 1 then
      t.answer = 'new'
    else
      if t.i then
        local key = idempotency_key(t.q, t.i)
        local id, state, fingerprint = read_idempotency(key)
        if claimed[key] then id, state, fingerprint = claimed[key].id, 'processing', claimed[key].g end
        if id and state == 'processing' and not claimed[key] and call('EXISTS', K.task .. id) == 0 then id = nil end
        if id and fingerprint ~= t.g then return { '!mismatch', id } end
        if id and state == 'processing' then return { '!in_progress', id } end
        if id then t.answer = 'duplicate:' .. id else claimed[key] = t end
      end
      if not t.answer then
        if t.due then delayed = delayed + 1 else adds[t.q] = (adds[t.q] or 0) + 1 end
      end
    end
  end
  for queue, n in pairs(adds) do
    local have = depth(queue)
    if not have then return { '!damaged', 'a stream of queue ' .. queue .. ' is not a stream' } end
    if have + n > S.max_queue_depth then return { '!queue_full', queue, have } end
  end
  if delayed > 0 and scheduled_now() + delayed > S.max_scheduled then
    return { '!schedule_full', scheduled_now() }
  end
  return nil
end

local FRESH_PENDING = PENDING .. ':1:0'

-- A task that is nothing but name, payload and defaults.
local function accept_plain(t, streams)
  local queue = t.q
  local stream = streams[queue]
  if not stream then
    stream = stream_key(queue, 5)
    streams[queue] = stream
    fill(queue, '5')
  end
  local entry = call('XADD', stream, '*', 'i', t.id)
  call('HSET', K.task .. t.id, 's', FRESH, 'n', queue == 'default' and t.n or packed(queue, t.n), 'p', t.p, 'e', entry)
  depths[queue] = depths[queue] + 1
  emit('TASK_QUEUED', t)
  return 'new'
end

local function accept(t)
  local fields = t.extra
  local more = (t.i or t.r or t.R) and '+' or ''
  push(fields, 'n', packed(t.q, t.n))
  push(fields, 'p', t.p)
  if t.X then
    push(fields, 'x', int(now + tonumber(t.X)))
    push(fields, 'X', t.X)
  end
  if t.i then
    push(fields, 'i', t.i)
    push(fields, 'g', t.g)
    call('SET', idempotency_key(t.q, t.i), idempotency_value(t.id, 'processing', t.g))
  end
  if t.due then
    call('HSET', K.task .. t.id, 's', FRESH_PENDING .. more, 'd', int(t.due), unpack(fields))
    schedule(t.id, t.q, t.due)
    scheduled = scheduled + 1
    seen_queues[t.q] = true
    emit('TASK_SCHEDULED', t, nil, '{"due_ms":' .. int(t.due) .. '}')
  else
    t.y = tonumber(t.y or 5)
    push(fields, 'e', enter(t))
    call('HSET', K.task .. t.id, 's', FRESH .. more, unpack(fields))
    depths[t.q] = depths[t.q] + 1
    emit('TASK_QUEUED', t)
  end
  return 'new'
end

local answers, streams = {}, {}
for u, unit in ipairs(units) do
  local refusal = check(unit)
  if refusal then
    answers[u] = refusal
  else
    local answer = {}
    for i, t in ipairs(unit) do
      answer[i] = t.answer or (t.extra and accept(t) or accept_plain(t, streams))
    end
    answers[u] = answer
  end
end
flush()
return answers
