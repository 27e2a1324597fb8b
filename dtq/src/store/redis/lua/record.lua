-- Records: reading them with suspicion, moving their status, ending them.
--
-- Field names (records.rs explains each): s n y m t p x X d i g r R b M e w o f c E D h u W z k K A T v.
-- What equals its default is absent: v 1, y 5, m 5, t 30000.
--
-- Field s is `status:attempt:lease number`, with a + behind it when the record has options beyond name,
-- payload and entry: compared as one text it fences a write. Field n is the task type, with `queue/`
-- before it unless that is `default`. A record missing one of them is damaged.

local function task_key(id) return K.task .. id end

local function packed(queue, name) return queue == 'default' and name or queue .. '/' .. name end

-- A queued task that has never run, and what becomes of it when it is fetched.
local FRESH, FRESH_RUNNING = QUEUED .. ':1:0', RUNNING .. ':1:1'

local function idempotency_key(queue, key) return K.idempotency .. queue .. ':' .. key end

local function idempotency_value(id, state, fingerprint)
  return '{"task_id":"' .. id .. '","state":"' .. state .. '","updated_at":' .. now_text
    .. ',"fingerprint":"' .. fingerprint .. '"}'
end

-- task id, state, fingerprint; nothing if absent or unreadable (then it is as good as absent).
local function read_idempotency(key)
  local text = pcall_('GET', key)
  if type(text) ~= 'string' then return nil end
  return string.match(text, '^{"task_id":"([%w-]+)","state":"(%a+)","updated_at":%d+,"fingerprint":"(%w*)"}$')
end

-- Puts the task into its queue with a new entry, which tells the attempt that it will execute unless that
-- is the first; the caller has checked what must hold.
local function enter(r)
  local priority = int(r.y)
  fill(r.q, priority)
  local stream = stream_key(r.q, priority)
  if r.a == 1 then return call('XADD', stream, '*', 'i', r.id) end
  return call('XADD', stream, '*', 'i', r.id, 'a', int(r.a))
end

-- A whole number as it is written here: digits alone, few enough to be exact. Nil: it is none.
local function whole(text)
  return text and #text <= 15 and string.match(text, '^%d+$') and tonumber(text) or nil
end

-- What follows is made when it is needed: making it takes as long as an enqueue.
local state, unpacked, load, from_flat, load_all, newer, damage, move, worker_of, remember,
  error_json, settle_idempotency, leave, finish, bury, die, quarantine

local function records()
  if state then return end
  tables()

  local FIELDS = { 's', 'n', 'y', 'm', 'x', 'i', 'r', 'R', 'e', 'w', 'o', 'c', 'W', 'T', 'v' }

  -- What packs status, attempt and lease number.
  function state(r)
    return CODES[r.s] .. ':' .. int(r.a or 1) .. ':' .. int(r.l or 0) .. (r.more or '')
  end

  local NUMBERS = { 'y', 'm', 't', 'x', 'b', 'u', 'r', 'R' }

  -- The record's fields as values. Garbage becomes what is absent, so that no code meets it: `bad` says so.
  function unpacked(r)
    if r.s == FRESH then
      r.s, r.a, r.l, r.more = QUEUED, 1, 0, ''
    elseif r.s then
      local s, a, l, more = string.match(r.s, '^(%d):(%d+):(%d+)(%+?)$')
      if not s or #a > 9 then s, a, l, more = nil, nil, nil, nil end
      r.s, r.a, r.l, r.more = tonumber(s), tonumber(a), whole(l), more
      if not (r.l and STATUS[r.s]) then r.s = nil end
    end
    if r.n then
      local queue, name = string.match(r.n, '^([^/]*)/(.*)$')
      if not queue then
        r.q = 'default'
      elseif #queue <= 64 and string.match(queue, '^[a-z0-9][a-z0-9_-]*$') then
        r.q, r.n = queue, name
      else
        r.bad = 'field n names no queue'
      end
    end
    for _, name in ipairs(NUMBERS) do
      if r[name] then
        local value = whole(r[name])
        if not value then r.bad = 'field ' .. name .. ' is not a number' end
        r[name] = value
      end
    end
    if r.y and r.y > 9 then r.y, r.bad = nil, 'field y is not a priority' end
    -- One that has ended has none.
    if r.e == '' then r.e = nil end
    if r.e then
      local ms, seq = string.match(r.e, '^(%d+)-(%d+)$')
      if not (whole(ms) and whole(seq)) then r.e, r.bad = nil, 'field e is not an entry' end
    end
    r.y, r.m = r.y or 5, r.m or 5
    return r
  end

  -- The record without its payload; nil, 'missing' | 'wrong type'.
  function load(id)
    local values = pcall_('HMGET', task_key(id), unpack(FIELDS))
    if values.err then return nil, 'wrong type' end
    local r = { id = id }
    local any = false
    for i, name in ipairs(FIELDS) do
      if values[i] then r[name] = values[i]; any = true end
    end
    if not any then return nil, 'missing' end
    return unpacked(r)
  end

  -- The whole record, payload included, from the reply of HGETALL.
  function from_flat(id, flat)
    if flat.err then return nil, 'wrong type' end
    if #flat == 0 then return nil, 'missing' end
    local r = { id = id }
    for i = 1, #flat, 2 do r[flat[i]] = flat[i + 1] end
    return unpacked(r)
  end

  function load_all(id) return from_flat(id, pcall_('HGETALL', task_key(id))) end

  function newer(r) return r.v and tonumber(r.v) ~= nil and tonumber(r.v) > S.version end

  -- What is wrong with a record that is to be queued or run, or nil.
  function damage(r)
    if not r.s then return 'field s is missing or not a state' end
    if not r.n then return 'field n is missing' end
    return r.bad
  end

  -- Every write of a status: checks the table, then writes status, attempt, lease number and pairs. False
  -- if not allowed.
  function move(r, to, ...)
    if not (MOVES[r.s] and MOVES[r.s][to]) then
      note(r.id, 'a task cannot go from ' .. tostring(STATUS[r.s]) .. ' to ' .. tostring(STATUS[to]))
      return false
    end
    r.s = to
    call('HSET', task_key(r.id), 's', state(r), ...)
    return true
  end

  function worker_of(r) return r.w and string.match(r.w, '^[^/]*') end

  -- A line of the attempt history: what the record's latest attempt came to.
  function remember(r, outcome, error_json)
    local key = task_key(r.id)
    local lines = call('HGET', key, 'h') or ''
    lines = lines .. '{"attempt":' .. tostring(r.a or 0) .. ',"started_ms":' .. (tonumber(r.o) and r.o or '0')
      .. ',"ended_ms":' .. now_text .. ',"worker_id":"' .. safe(worker_of(r)) .. '","outcome":"' .. outcome
      .. '","error":' .. (error_json or 'null') .. '}\n'
    local _, n = string.gsub(lines, '\n', '')
    while n > 20 do
      lines = string.sub(lines, string.find(lines, '\n', 1, true) + 1)
      n = n - 1
    end
    call('HSET', key, 'h', lines)
  end

  function error_json(class, message)
    return '{"class":"' .. class .. '","message":"' .. safe(string.gsub(message, ' ', '_')):gsub('_', ' ')
      .. '","retryable":false}'
  end

  -- Only on behalf of the task that the key's record names.
  function settle_idempotency(r, state)
    if not r.i or not r.q then return end
    local key = idempotency_key(r.q, r.i)
    local id, _, fingerprint = read_idempotency(key)
    if id ~= r.id then return end
    local value = idempotency_value(id, state, fingerprint)
    if state == 'processing' then call('SET', key, value) else call('SET', key, value, 'PX', S.idempotency_ttl) end
  end

  -- Removes the entry that the record names.
  function leave(r)
    if r.e and r.q and r.y then ack(stream_key(r.q, int(r.y)), r.e) end
  end

  local ENDED = {
    [SUCCEEDED] = 'TASK_SUCCEEDED', [FAILED] = 'TASK_FAILED', [DEAD_LETTERED] = 'TASK_DEAD_LETTERED',
    [CANCELLED] = 'TASK_CANCELLED', [EXPIRED] = 'TASK_EXPIRED',
  }

  -- A terminal status with all that follows from it: entry, lease, schedule, retention, key, waiters,
  -- counters, event. Pairs are further fields to set. `from_schedule` says that it waited there.
  function finish(r, to, metadata, ...)
    if not move(r, to, 'f', now_text, 'e', '', ...) then return false end
    local key = task_key(r.id)
    leave(r)
    call('HDEL', key, 'c', 'd')
    if r.w then call('HSET', key, 'w', worker_of(r)) end
    push(leases_gone, r.id)
    settle_idempotency(r, to == SUCCEEDED and 'completed' or 'failed')
    local keep = r.r or (to == SUCCEEDED and S.result_retention or S.task_retention)
    if keep > 0 then
      call('PEXPIRE', key, int(keep))
      push(recent_new, now_text, r.id)
    else
      -- Gone at once, but for a mark that lets a repeated enqueue or finish be recognised.
      call('DEL', key)
      call('HSET', key, 's', state(r), 'T', '1')
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
  function bury(id, queue, name, attempts, worker, error, payload)
    return call('XADD', K.dead_letters, 'MAXLEN', '~', S.dlq_maxlen, '*', 'v', S.version, 'i', tostring(id or ''),
      'q', queue or '', 'n', name or '', 'a', attempts or 0, 'w', worker or '', 'E', error, 'p', payload or '')
  end

  -- The permanent path: dead_lettered with a dead letter, or failed while the DLQ is disabled.
  function die(r, error)
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
  function quarantine(r, why, queue)
    note(r.id, 'quarantined: ' .. why)
    local error = error_json('DamagedRecord', why)
    r.q = r.q or queue
    r.y = r.y or 5
    if MOVES[r.s] == nil then r.s = QUEUED end
    r.a, r.l, r.more = r.a or 1, r.l or 0, r.more or '+'
    if r.q and not r.n then call('HSET', task_key(r.id), 'n', packed(r.q, '')) end
    if r.s == RUNNING then remember(r, 'dead_lettered', error) end
    return die(r, error)
  end
end
