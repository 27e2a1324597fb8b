-- finish: writes what attempts came to, each fenced by its lease.
-- ARGV    worker id, incarnation, then groups until the end: queue, priority, tasks, and for each task: id,
--         entry, `attempt:lease number`, outcome and what belongs to it:
--         null | json, JSON | large, size (these succeeded)
--         retry, delay ms, error | dead, error | cancelled | released | snoozed, delay ms, 1 if unknown type
-- Returns {answers, notes}; an answer: the status code that was written, -1 already applied, -2 lost.
-- Atomic  each item: fence, status, follow-up (schedule, entry, dead letter, result), key, event.

local answers = {}
local worker, incarnation = arg(), arg()
local holder = worker .. '/' .. incarnation

local apply = {
  null = function(r) return finish(r, SUCCEEDED) end,
  large = function(r, size) return finish(r, SUCCEEDED, nil, 'z', size) end,
  json = function(r, value)
    local keep = r.R or r.r or S.result_retention
    if not finish(r, SUCCEEDED, nil, 'z', 'j') then return false end
    if keep > 0 then call('SET', K.result .. r.id, value, 'PX', int(keep)) end
    return true
  end,
  retry = function(r, delay, error)
    remember(r, 'retrying', error)
    local due = now + tonumber(delay)
    if not move(r, RETRYING, 'E', error, 'D', delay, 'd', int(due)) then return false end
    schedule(r.id, r.q, due)
    emit('TASK_RETRY_SCHEDULED', r, worker_of(r), '{"delay_ms":' .. delay .. ',"error":' .. error .. '}')
    return true
  end,
  dead = function(r, error)
    remember(r, S.dlq_enabled and 'dead_lettered' or 'failed', error)
    return die(r, error)
  end,
  cancelled = function(r)
    remember(r, 'cancelled')
    return finish(r, CANCELLED)
  end,
  released = function(r)
    remember(r, 'released')
    if not (MOVES[r.s] and MOVES[r.s][QUEUED]) then return false end
    local entry = enter(r)
    local done = move(r, QUEUED, 'e', entry)
    emit('TASK_RELEASED', r, worker_of(r))
    return done
  end,
  snoozed = function(r, delay, unknown)
    remember(r, 'snoozed')
    local due = now + tonumber(delay)
    if not move(r, PENDING, 'd', int(due)) then return false end
    if unknown == '1' then call('HSETNX', task_key(r.id), 'u', now_text) end
    schedule(r.id, r.q, due)
    emit('TASK_SNOOZED', r, worker_of(r), '{"delay_ms":' .. delay .. '}')
    return true
  end,
}

-- What follows an outcome in ARGV.
local BELONGS = { null = 0, json = 1, large = 1, retry = 2, dead = 1, cancelled = 0, released = 0, snoozed = 2 }

-- What needs more than a plain success: everything is read first.
local function write(queue, priority, id, entry, fence, outcome, x, y)
  records()
  local attempt, lease = string.match(fence, '^(%d+):(%d+)$')
  attempt, lease = tonumber(attempt), tonumber(lease)
  local stream = stream_key(queue, priority)
  local succeeded = outcome == 'null' or outcome == 'json' or outcome == 'large'
  local r, why = load(id)
  if not r then
    -- Deleted by hand if the entry still stands: what failed must not vanish without a trace.
    local stood = call('XDEL', stream, entry)
    call('XACK', stream, 'workers', entry)
    push(leases_gone, id)
    if stood == 1 then
      note(id, 'finished as ' .. outcome .. ' but its record is ' .. why)
      if not succeeded and outcome ~= 'cancelled' then
        bury(id, queue, nil, attempt, worker, error_json('DamagedRecord', 'the record is ' .. why))
      end
    end
    return -2
  end
  -- A single field that was deleted by hand is known to the holder of the lease.
  local mine = r.l == lease or (not r.l and r.e == entry)
  if not mine then return -2 end
  if not r.s and r.e == entry then r.s, r.more = RUNNING, '+' end
  if r.s ~= RUNNING then return -1 end
  for name, value in pairs({ q = queue, y = tonumber(priority), a = attempt, e = entry, w = holder, m = 5, l = lease }) do
    r[name] = r[name] or value
  end
  if r.c and not succeeded then outcome, x, y = 'cancelled', nil, nil end
  local was = r.e
  if not apply[outcome](r, x, y) then return -2 end
  if r.s < SUCCEEDED then
    -- What ends a task has done this already.
    ack(stream, was)
    push(leases_gone, id)
    call('HDEL', task_key(id), 'w', 'c', r.s ~= QUEUED and 'e' or 'w')
  end
  return r.s
end

-- A task without options that succeeded, that nobody waits for, listens to or has cancelled: what `write` would
-- do, in half the calls. False: it is not one.
local running, succeeded = RUNNING .. ':', SUCCEEDED .. ':'
local result_keep, keep = int(S.result_retention), S.result_retention > 0
local function plain(stream, id, entry, fence, outcome, value)
  local key = K.task .. id
  local r = pcall_('HMGET', key, 's', 'e', 'W', 'c')
  if r[1] ~= running .. fence or r[2] ~= entry or r[3] or r[4] then return false end
  if outcome == 'null' then
    call('HSET', key, 's', succeeded .. fence, 'e', '', 'w', worker, 'f', now_text)
  else
    call('HSET', key, 's', succeeded .. fence, 'e', '', 'w', worker, 'f', now_text, 'z', 'j')
    call('SET', K.result .. id, value, 'PX', result_keep)
  end
  call('PEXPIRE', key, result_keep)
  ack(stream, entry)
  leases_gone[#leases_gone + 1] = id
  recent_new[#recent_new + 1] = now_text
  recent_new[#recent_new + 1] = id
  return true
end

local may_be_plain = keep and not is_listened_to()
while at < #ARGV do
  local queue, priority, n = arg(), arg(), tonumber(arg())
  local stream = stream_key(queue, priority)
  local done = 0
  for _ = 1, n do
    local id, entry, fence, outcome = ARGV[at + 1], ARGV[at + 2], ARGV[at + 3], ARGV[at + 4]
    at = at + 4
    local belongs, x, y = BELONGS[outcome], nil, nil
    if belongs > 0 then x = arg() end
    if belongs > 1 then y = arg() end
    if may_be_plain and (outcome == 'null' or outcome == 'json') and plain(stream, id, entry, fence, outcome, x) then
      done = done + 1
      answers[#answers + 1] = SUCCEEDED
    else
      answers[#answers + 1] = write(queue, priority, id, entry, fence, outcome, x, y)
    end
  end
  if done > 0 then count(queue, 'succeeded', done) end
end
flush()
return { answers, notes }
