-- enqueue: accepts units of tasks.
-- ARGV    units, then for each: tasks, then for each task: id, name, queue, priority, max attempts,
--         timeout, payload, due kind (n now, a after, t at), due, ttl or '', idempotency key or '',
--         fingerprint, pairs, then as many field-value pairs (optional fields of the record).
-- Returns for each unit: a list of 'new' | 'duplicate:<id>' for its tasks, or
--         {'!queue_full', queue, depth} {'!schedule_full', n} {'!in_progress', id} {'!mismatch', id}
--         {'!damaged', text}.
-- Atomic  check and add of a unit: admission, idempotency, record, entry or schedule, event. A unit
--         is all or nothing; a refused one leaves nothing behind.

local depths = {}
local function depth(queue)
  if not depths[queue] then
    local sum = 0
    for priority = 0, 9 do
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

local units, keys = {}, {}
for u = 1, tonumber(arg()) do
  local unit = {}
  for i = 1, tonumber(arg()) do
    local t = {
      id = arg(), n = arg(), q = arg(), y = tonumber(arg()), m = arg(), t = arg(), p = arg(),
      due_kind = arg(), due = tonumber(arg()), ttl = tonumber(arg()), i = arg(), fingerprint = arg(), a = 1,
    }
    t.extra = {}
    for _ = 1, tonumber(arg()) do push(t.extra, arg(), arg()) end
    if t.due_kind == 'n' then t.due = 0 elseif t.due_kind == 'a' and t.due > 0 then t.due = now + t.due end
    if t.due <= now then t.due = nil end
    unit[i] = t
    push(keys, K.task .. t.id)
  end
  units[u] = unit
end

-- A repeated enqueue finds its own records. One command tells the usual case, that there are none.
local repeated = call('EXISTS', unpack(keys)) > 0

local function check(unit)
  local adds, delayed, claimed = {}, 0, {}
  for _, t in ipairs(unit) do
    if repeated and call('EXISTS', K.task .. t.id) == 1 then
      t.answer = 'new'
    else
      if t.i ~= '' then
        local key = idempotency_key(t.q, t.i)
        local id, state, fingerprint = read_idempotency(key)
        if claimed[key] then id, state, fingerprint = claimed[key].id, 'processing', claimed[key].fingerprint end
        if id and state == 'processing' and not claimed[key] and call('EXISTS', K.task .. id) == 0 then id = nil end
        if id and fingerprint ~= t.fingerprint then return { '!mismatch', id } end
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

local function accept(t)
  local fields = t.extra
  push(fields, 'v', S.version)
  push(fields, 'a', 1)
  push(fields, 'n', t.n)
  push(fields, 'q', t.q)
  push(fields, 'p', t.p)
  if t.y ~= 5 then push(fields, 'y', t.y) end
  if t.m ~= '5' then push(fields, 'm', t.m) end
  if t.t ~= '30000' then push(fields, 't', t.t) end
  if t.ttl then
    push(fields, 'x', int(now + t.ttl))
    push(fields, 'X', int(t.ttl))
  end
  if t.i ~= '' then
    push(fields, 'i', t.i)
    push(fields, 'g', t.fingerprint)
    call('SET', idempotency_key(t.q, t.i), idempotency_value(t.id, 'processing', t.fingerprint))
  end
  if t.due then
    call('HSET', K.task .. t.id, 's', PENDING, 'd', int(t.due), unpack(fields))
    schedule(t.id, t.q, t.due)
    scheduled = scheduled + 1
    emit('TASK_SCHEDULED', t, nil, '{"due_ms":' .. int(t.due) .. '}')
  else
    push(fields, 'e', enter(t))
    call('HSET', K.task .. t.id, 's', QUEUED, unpack(fields))
    depths[t.q] = depths[t.q] + 1
    emit('TASK_QUEUED', t)
  end
  seen_queues[t.q] = true
  return 'new'
end

local answers = {}
for u, unit in ipairs(units) do
  local refusal = check(unit)
  if refusal then
    answers[u] = refusal
  else
    local answer = {}
    for i, t in ipairs(unit) do answer[i] = t.answer or accept(t) end
    answers[u] = answer
  end
end
flush()
return answers
