-- admin: what an administrator does to single tasks and queues, each audited here (SPEC 9.3, 9.4).
-- ARGV    actor, action, then
--         requeue, ids ... | discard, ids ... | remove, ids ... | pause, queue | resume, queue
--         purge, queue, limit | note, action text, target, count
-- Returns requeue: for each 'ok' 'not_found' 'status:<code>' 'key:<id>'; discard and remove: for each 1 or 0;
--         pause, resume, note: 1; purge: {cancelled, 1 if more may be left}.
-- Atomic  the deed and its audit line.

records()
local actor, action = arg(), arg()

local function audit(what, target, n)
  call('XADD', K.audit, 'MAXLEN', '~', 10000, '*', 'actor', actor, 'action', what, 'target', target, 'count', int(n))
end

local function requeue(id)
  local r = load(id)
  if not r or r.T then return 'not_found' end
  if not r.s or not RESURRECTABLE[r.s] then return 'status:' .. tostring(r.s) end
  if damage(r) then return 'not_found' end
  if r.i then
    local key = idempotency_key(r.q, r.i)
    local other, state, fingerprint = read_idempotency(key)
    if other and other ~= id and state == 'processing' and call('EXISTS', K.task .. other) == 1 then
      return 'key:' .. other
    end
    fingerprint = call('HGET', task_key(id), 'g') or fingerprint
    if fingerprint and (not other or other == id) then
      call('SET', key, idempotency_value(id, 'processing', fingerprint))
    end
  end
  local key = task_key(id)
  local more = call('HMGET', key, 'A', 'k', 'X')
  call('PERSIST', key)
  call('HSET', key, 'A', (more[1] and more[1] .. ',' or '') .. int(r.a))
  if more[2] then call('XDEL', K.dead_letters, more[2]) end
  if more[3] then call('HSET', key, 'x', int(now + tonumber(more[3]))) end
  call('HDEL', key, 'f', 'z', 'k', 'K', 'c', 'u', 'D')
  call('ZREM', K.recent, id)
  r.a, r.s = 1, QUEUED
  call('HSET', key, 's', state(r), 'e', enter(r))
  seen_queues[r.q] = true
  emit('TASK_QUEUED', r, nil, '{"requeued":true}')
  audit('requeue', id, 1)
  return 'ok'
end

-- Removes the dead letter; the record stays marked, or goes with all that belongs to it.
local function discard(id, keep)
  local key = task_key(id)
  local r = load(id)
  local letter = r and call('HGET', key, 'k')
  if not letter or call('XDEL', K.dead_letters, letter) == 0 then return 0 end
  if keep then
    call('HSET', key, 'K', 1)
    call('HDEL', key, 'k')
  else
    if r.i and r.q and read_idempotency(idempotency_key(r.q, r.i)) == id then
      call('DEL', idempotency_key(r.q, r.i))
    end
    call('DEL', key, K.result .. id)
    call('ZREM', K.recent, id)
  end
  audit(keep and 'discard' or 'purge', id, 1)
  return 1
end

-- Cancels what waits in the queue, oldest of the highest priority first; running tasks go on.
local function purge(queue, limit)
  local n, more = 0, 0
  for priority = 9, 0, -1 do
    local stream = stream_key(queue, priority)
    local from = '-'
    while n < limit do
      local entries = call('XRANGE', stream, from, '+', 'COUNT', 200)
      if #entries == 0 then break end
      for _, entry in ipairs(entries) do
        local id
        for i = 1, #entry[2], 2 do if entry[2][i] == 'i' then id = entry[2][i + 1] end end
        local r = id and load(id)
        if r and r.s == QUEUED and r.e == entry[1] and not damage(r) then
          finish(r, CANCELLED, '{"purged":true}')
          n = n + 1
        elseif not (r and r.s == RUNNING and r.e == entry[1]) then
          ack(stream, entry[1])
          n = n + 1
        end
        from = '(' .. entry[1]
        if n >= limit then more = 1 break end
      end
    end
  end
  if n > 0 then audit('purge', queue, n) end
  return { n, more }
end

local answer
if action == 'requeue' or action == 'discard' or action == 'remove' then
  answer = {}
  for i = at + 1, #ARGV do
    push(answer, action == 'requeue' and requeue(ARGV[i]) or action ~= 'requeue' and discard(ARGV[i], action == 'discard'))
  end
elseif action == 'pause' or action == 'resume' then
  local queue = arg()
  if action == 'pause' then
    call('SET', K.queue .. queue .. ':paused', '1')
  else
    call('DEL', K.queue .. queue .. ':paused')
    wake(queue)
  end
  seen_queues[queue] = true
  audit(action, queue, 1)
  answer = 1
elseif action == 'purge' then
  answer = purge(arg(), tonumber(arg()))
else
  audit(arg(), arg(), tonumber(arg()))
  answer = 1
end
flush()
return answer
