-- fetch: leases ready tasks to a holder.
-- ARGV    worker id, incarnation, nonce, visibility ms, max, queues in the order of preference ...
-- Returns {now, tasks, notes}; a task: id, queue, priority, attempt, lease number, entry, name, payload,
--         max attempts, timeout, idempotency key, metadata, result limit, unknown since ('' for none).
-- Atomic  entry read, record running, lease granted, event; repeated with its nonce it grants
--         nothing new and returns what it granted. What must not run is dropped on the way.

local worker, incarnation, nonce = arg(), arg(), arg()
local visibility, max = tonumber(arg()), tonumber(arg())
local holder = worker .. '/' .. incarnation
local deadline = int(now + visibility)
local tasks, granted = {}, {}

local function hand_over(r)
  push(leases_new, deadline, r.id)
  granted[#granted + 1] = r.id .. ':' .. int(r.l)
  tasks[#tasks + 1] = {
    r.id, r.q, r.y, r.a, int(r.l), r.e, r.n, r.p, r.m, r.t or '30000',
    r.i or '', r.M or '', r.b or '', r.u or '',
  }
end

local receipt = K.fetch .. incarnation
local before = call('GET', receipt)
if before and string.sub(before, 1, #nonce + 1) == nonce .. '\n' then
  for id, lease in string.gmatch(before, '(%w+):(%d+)') do
    local r = load_all(id)
    if r and r.s == RUNNING and r.l == tonumber(lease) and not damage(r) then hand_over(r) end
  end
  flush()
  return { int(now), tasks, notes }
end

-- What becomes of an entry; true if it was leased.
local function take(queue, priority, stream, entry, fields)
  local f = {}
  for i = 1, #fields, 2 do f[fields[i]] = fields[i + 1] end
  if tonumber(f.v or 1) ~= nil and tonumber(f.v or 1) > S.version then
    note(f.i, 'entry ' .. entry .. ' has the newer version ' .. f.v .. ' and is left alone')
    return false
  end
  local id = f.i
  if not id or not f.v or not string.match(id, '^%w+$') or #id ~= 22 then
    note(nil, 'quarantined: entry ' .. entry .. ' of queue ' .. queue .. ' names no task')
    bury(id, queue, f.n, f.a, nil, error_json('UndecodableEntry', 'the entry names no task'), f.p)
    ack(stream, entry)
    return false
  end
  local r, why = load_all(id)
  if not r then
    note(id, 'quarantined: its record is ' .. why)
    bury(id, queue, nil, f.a, nil, error_json('DamagedRecord', 'the record is ' .. why))
    ack(stream, entry)
    push(leases_gone, id)
    return false
  end
  if newer(r) then
    note(id, 'its record has the newer version ' .. r.v .. ' and is left alone')
    return false
  end
  if r.s and r.s >= SUCCEEDED then
    ack(stream, entry)
    return false
  end
  if r.e and r.e ~= entry then
    ack(stream, entry)
    emit('TASK_DUPLICATE_ABSORBED', r, worker)
    return false
  end
  if r.s == RUNNING then return false end
  local broken = damage(r) or (not r.p and 'field p is missing') or (not r.e and 'field e is missing')
    or (r.s ~= QUEUED and 'its status is ' .. STATUS[r.s] .. ' but it stands in a queue')
  if broken then
    ack(stream, entry)
    if r.s == PENDING or r.s == RETRYING then unschedule(id, r.q) end
    quarantine(r, broken, queue)
    return false
  end
  if r.c then finish(r, CANCELLED) return false end
  if r.x and now >= r.x then finish(r, EXPIRED) return false end
  r.l = (r.l or 0) + 1
  if not move(r, RUNNING, 'l', int(r.l), 'w', holder, 'o', int(now)) then return false end
  r.w = holder
  hand_over(r)
  emit('TASK_STARTED', r, worker)
  return true
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

-- Whether a queue has entries that nobody has read yet, at this priority or below.
local function left_behind(queue, priority)
  for p = priority, 0, -1 do
    local stream = stream_key(queue, p)
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
for q = at + 1, #ARGV do
  local queue = ARGV[q]
  if full then
    -- A queue not reached may hold what its token announced to this very worker.
    if left_behind(queue, 9) then wake(queue) end
  elseif call('EXISTS', K.queue .. queue .. ':paused') == 0 then
    for priority = 9, 0, -1 do
      local stream = stream_key(queue, priority)
      local length = full and 0 or pcall_('XLEN', stream)
      if type(length) ~= 'number' then
        note(nil, 'stream ' .. stream .. ' is not a stream')
        length = 0
      end
      while length > 0 and not full do
        local want = math.min(max - #tasks, budget)
        local entries = read(stream, want)
        budget = budget - #entries
        for _, entry in ipairs(entries) do
          if entry[2] then take(queue, priority, stream, entry[1], entry[2]) else ack(stream, entry[1]) end
        end
        if #entries < want then length = 0 end
        full = #tasks >= max or budget <= 0
        if full and left_behind(queue, priority) then wake(queue) end
      end
    end
  end
end

if #granted > 0 then
  call('SET', receipt, nonce .. '\n' .. table.concat(granted, ' '), 'PX', int(visibility))
end
flush()
return { int(now), tasks, notes }
