-- finish: writes what attempts came to, each fenced by its lease.
-- ARGV    for each: id, lease number, queue, priority, attempt, entry, holder, outcome, x, y:
--         succeeded, result kind (j JSON, n null, l too large), JSON or size
--         retry, delay ms, error | dead, '', error | cancelled | released | snoozed, delay ms, 1 if unknown type
-- Returns {answers, notes}; an answer: the status code that was written, -1 already applied, -2 lost.
-- Atomic  each item: fence, status, follow-up (schedule, entry, dead letter, result), key, event.

local answers = {}

local apply = {
  succeeded = function(r, kind, value)
    if kind == 'j' then
      local keep = tonumber(r.R) or tonumber(r.r) or S.result_retention
      if not finish(r, SUCCEEDED) then return false end
      if keep > 0 then call('SET', K.result .. r.id, value, 'PX', int(keep)) end
      return true
    end
    return finish(r, SUCCEEDED, nil, 'z', kind == 'n' and 'n' or value)
  end,
  retry = function(r, delay, error)
    remember(r, 'retrying', error)
    local due = now + tonumber(delay)
    if not move(r, RETRYING, 'E', error, 'D', delay, 'd', int(due)) then return false end
    schedule(r.id, r.q, due)
    emit('TASK_RETRY_SCHEDULED', r, worker_of(r), '{"delay_ms":' .. delay .. ',"error":' .. error .. '}')
    return true
  end,
  dead = function(r, _, error)
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
    if unknown == '1' then call('HSETNX', task_key(r.id), 'u', int(now)) end
    schedule(r.id, r.q, due)
    emit('TASK_SNOOZED', r, worker_of(r), '{"delay_ms":' .. delay .. '}')
    return true
  end,
}

for i = 1, #ARGV, 10 do
  local id, lease, queue, priority = ARGV[i], tonumber(ARGV[i + 1]), ARGV[i + 2], tonumber(ARGV[i + 3])
  local attempt, entry, holder = tonumber(ARGV[i + 4]), ARGV[i + 5], ARGV[i + 6]
  local outcome, x, y = ARGV[i + 7], ARGV[i + 8], ARGV[i + 9]
  local stream = stream_key(queue, priority)
  local r, why = load(id)
  if not r then
    -- Deleted by hand if the entry still stands: what failed must not vanish without a trace.
    local stood = call('XDEL', stream, entry)
    call('XACK', stream, 'workers', entry)
    push(leases_gone, id)
    if stood == 1 then
      note(id, 'finished as ' .. outcome .. ' but its record is ' .. why)
      if outcome ~= 'succeeded' and outcome ~= 'cancelled' then
        bury(id, queue, nil, attempt, string.match(holder, '^[^/]*'), error_json('DamagedRecord', 'the record is ' .. why))
      end
    end
    push(answers, -2)
  else
    -- A single field that was deleted by hand is known to the holder of the lease.
    local mine = r.l == lease or (not r.l and r.e == entry)
    if mine then
      if not r.s and r.e == entry then r.s = RUNNING end
      if r.s == RUNNING then
        for name, value in pairs({ q = queue, y = priority, a = attempt, e = entry, w = holder, m = 5, l = lease }) do
          r[name] = r[name] or value
        end
      end
    end
    if not mine then
      push(answers, -2)
    elseif r.s ~= RUNNING then
      push(answers, -1)
    else
      if r.c and outcome ~= 'succeeded' then outcome = 'cancelled' end
      local was = r.e
      if apply[outcome](r, x, y) then
        if r.s < SUCCEEDED then
          -- What ends a task has done this already.
          ack(stream, was)
          push(leases_gone, id)
          call('HDEL', task_key(id), 'w', 'c', r.s ~= QUEUED and 'e' or 'w')
        end
        push(answers, r.s)
      else
        push(answers, -2)
      end
    end
  end
end
flush()
return { answers, notes }
