-- Records: reading them with suspicion, moving their status, ending them.
--
-- Field names (records.rs explains each): v s a n q y m t p x X d i g r R b M e l w o f c E D h u W z k
-- K A T. What equals its default is absent: y 5, m 5, t 30000.

local FIELDS = { 'v', 's', 'a', 'n', 'q', 'y', 'm', 'x', 'i', 'r', 'R', 'e', 'l', 'w', 'o', 'c', 'W', 'T' }

local function task_key(id) return K.task .. id end

local function numbers(r)
  r.s, r.a, r.x = tonumber(r.s), tonumber(r.a), tonumber(r.x)
  r.l, r.y, r.m = tonumber(r.l), tonumber(r.y or 5), tonumber(r.m or 5)
  return r
end

-- The record without its payload; nil, 'missing' | 'wrong type'.
local function load(id)
  local values = pcall_('HMGET', task_key(id), unpack(FIELDS))
  if values.err then return nil, 'wrong type' end
  local r = { id = id }
  local any = false
  for i, name in ipairs(FIELDS) do
    if values[i] then r[name] = values[i]; any = true end
  end
  if not any then return nil, 'missing' end
  return numbers(r)
end

-- The whole record, payload included.
local function load_all(id)
  local flat = pcall_('HGETALL', task_key(id))
  if flat.err then return nil, 'wrong type' end
  if #flat == 0 then return nil, 'missing' end
  local r = { id = id }
  for i = 1, #flat, 2 do r[flat[i]] = flat[i + 1] end
  return numbers(r)
end

local function newer(r) return tonumber(r.v or 1) ~= nil and tonumber(r.v or 1) > S.version end

-- What is wrong with a record that is to be queued or run, or nil.
local function damage(r)
  for _, name in ipairs({ 'v', 's', 'a', 'n', 'q' }) do
    if not r[name] then return 'field ' .. name .. ' is missing or not a number' end
  end
  if not STATUS[r.s] then return 'status code ' .. tostring(r.s) .. ' is unknown' end
  if not r.y or r.y < 0 or r.y > 9 or r.y % 1 ~= 0 then return 'field y is not a priority' end
  if not r.m then return 'field m is not a number' end
  return nil
end

-- Every write of a status: checks the table, then writes status and pairs. False if not allowed.
local function move(r, to, ...)
  if not (MOVES[r.s] and MOVES[r.s][to]) then
    note(r.id, 'a task cannot go from ' .. tostring(STATUS[r.s]) .. ' to ' .. tostring(STATUS[to]))
    return false
  end
  call('HSET', task_key(r.id), 's', to, ...)
  r.s = to
  return true
end

local function worker_of(r) return r.w and string.match(r.w, '^[^/]*') end

-- A line of the attempt history: what the record's latest attempt came to.
local function remember(r, outcome, error_json)
  local key = task_key(r.id)
  local lines = call('HGET', key, 'h') or ''
  lines = lines .. '{"attempt":' .. tostring(r.a or 0) .. ',"started_ms":' .. (tonumber(r.o) and r.o or '0')
    .. ',"ended_ms":' .. int(now) .. ',"worker_id":"' .. safe(worker_of(r)) .. '","outcome":"' .. outcome
    .. '","error":' .. (error_json or 'null') .. '}\n'
  local _, n = string.gsub(lines, '\n', '')
  while n > 20 do
    lines = string.sub(lines, string.find(lines, '\n', 1, true) + 1)
    n = n - 1
  end
  call('HSET', key, 'h', lines)
end

local function error_json(class, message)
  return '{"class":"' .. class .. '","message":"' .. safe(string.gsub(message, ' ', '_')):gsub('_', ' ')
    .. '","retryable":false}'
end

local function idempotency_key(queue, key) return K.idempotency .. queue .. ':' .. key end

local function idempotency_value(id, state, fingerprint)
  return '{"task_id":"' .. id .. '","state":"' .. state .. '","updated_at":' .. int(now)
    .. ',"fingerprint":"' .. fingerprint .. '"}'
end

-- task id, state, fingerprint; nothing if absent or unreadable (then it is as good as absent).
local function read_idempotency(key)
  local text = pcall_('GET', key)
  if type(text) ~= 'string' then return nil end
  return string.match(text, '^{"task_id":"([%w-]+)","state":"(%a+)","updated_at":%d+,"fingerprint":"(%w*)"}$')
end

-- Only on behalf of the task that the key's record names.
local function settle_idempotency(r, state)
  if not r.i or not r.q then return end
  local key = idempotency_key(r.q, r.i)
  local id, _, fingerprint = read_idempotency(key)
  if id ~= r.id then return end
  local value = idempotency_value(id, state, fingerprint)
  if state == 'processing' then call('SET', key, value) else call('SET', key, value, 'PX', S.idempotency_ttl) end
end

-- Puts the task into its queue with a new entry; the caller has checked what must hold.
local function enter(r)
  local entry = call('XADD', stream_key(r.q, r.y), '*', 'v', S.version, 'i', r.id, 'a', r.a)
  wake(r.q)
  return entry
end

-- Removes the entry that the record names.
local function leave(r)
  if r.e and r.q and r.y then ack(stream_key(r.q, r.y), r.e) end
end

local ENDED = {
  [SUCCEEDED] = 'TASK_SUCCEEDED', [FAILED] = 'TASK_FAILED', [DEAD_LETTERED] = 'TASK_DEAD_LETTERED',
  [CANCELLED] = 'TASK_CANCELLED', [EXPIRED] = 'TASK_EXPIRED',
}

-- A terminal status with all that follows from it: entry, lease, schedule, retention, key, waiters,
-- counters, event. Pairs are further fields to set. `from_schedule` says that it waited there.
local function finish(r, to, metadata, ...)
  if not move(r, to, 'f', int(now), ...) then return false end
  local key = task_key(r.id)
  leave(r)
  call('HDEL', key, 'e', 'c', 'd')
  push(leases_gone, r.id)
  settle_idempotency(r, to == SUCCEEDED and 'completed' or 'failed')
  local keep = tonumber(r.r) or (to == SUCCEEDED and S.result_retention or S.task_retention)
  if keep > 0 then
    call('PEXPIRE', key, int(keep))
    push(recent_new, int(now), r.id)
  else
    -- Gone at once, but for a mark that lets a repeated enqueue or finish be recognised.
    call('DEL', key)
    call('HSET', key, 'v', S.version, 's', to, 'a', r.a or 0, 'l', r.l or 0, 'T', 1)
    call('PEXPIRE', key, 60000)
  end
  if r.W then call('PUBLISH', K.done .. r.id, STATUS[to]) end
  if r.q then
    if to == SUCCEEDED then count(r.q, 'succeeded', 1)
    elseif to == DEAD_LETTERED or to == FAILED then count(r.q, 'failed', 1) end
  end
  emit(ENDED[to], r, worker_of(r), metadata)
  return true
end

-- A dead letter: the task with what is known of it and why.
local function bury(id, queue, name, attempts, worker, error, payload)
  return call('XADD', K.dead_letters, 'MAXLEN', '~', S.dlq_maxlen, '*', 'v', S.version, 'i', tostring(id or ''),
    'q', queue or '', 'n', name or '', 'a', attempts or 0, 'w', worker or '', 'E', error, 'p', payload or '')
end

-- The permanent path: dead_lettered with a dead letter, or failed while the DLQ is disabled.
local function die(r, error)
  if not (MOVES[r.s] and MOVES[r.s][DEAD_LETTERED]) then
    note(r.id, 'a task cannot go from ' .. tostring(STATUS[r.s]) .. ' to dead_lettered')
    return false
  end
  local metadata = '{"error":' .. error .. '}'
  -- The delay that was chosen after an earlier error.
  call('HDEL', task_key(r.id), 'D')
  if not S.dlq_enabled then return finish(r, FAILED, metadata, 'E', error) end
  local payload = call('HGET', task_key(r.id), 'p')
  local letter = bury(r.id, r.q, r.n, r.a, worker_of(r), error, payload or nil)
  return finish(r, DEAD_LETTERED, metadata, 'E', error, 'k', letter)
end

-- Damage by hand: the record, as far as there is one, is dead-lettered with what is known.
local function quarantine(r, why, queue)
  note(r.id, 'quarantined: ' .. why)
  local error = error_json('DamagedRecord', why)
  r.q = r.q or queue
  r.y = r.y or 5
  if MOVES[r.s] == nil then r.s = QUEUED end
  if r.q then call('HSET', task_key(r.id), 'q', r.q) end
  if r.s == RUNNING then remember(r, 'dead_lettered', error) end
  return die(r, error)
end
