-- claim: takes or refreshes the scheduler's lock and, holding it, claims due tasks.
-- ARGV    worker id, lock ms, limit.
-- Returns {0, ms until the lock may be free} or {1, ids, 1 if more are due, ms until the next or -1}.
-- Atomic  lock and claims: who has lost the lock claims nothing; a task is claimed once.

local worker, lock_ms, limit = arg(), arg(), tonumber(arg())
local leader = call('GET', K.lock)
if leader == worker then
  call('PEXPIRE', K.lock, lock_ms)
elseif leader then
  return { 0, math.max(call('PTTL', K.lock), 1) }
else
  call('SET', K.lock, worker, 'PX', lock_ms)
end

local due = call('ZRANGEBYSCORE', K.schedule, '-inf', now_text, 'LIMIT', 0, limit)
if #due > 0 then
  local claims = {}
  local ids = {}
  for _, id in ipairs(due) do
    -- Whatever else was put there by hand is dropped.
    if #id == 22 and string.match(id, '^%w+$') then
      push(claims, now_text, id)
      push(ids, id)
    end
  end
  call('ZREM', K.schedule, unpack(due))
  if #claims > 0 then call('ZADD', K.claimed, unpack(claims)) end
  due = ids
end
local head = call('ZRANGE', K.schedule, 0, 0, 'WITHSCORES')
local wait = head[2] and math.max(tonumber(head[2]) - now, 0) or -1
return { 1, due, wait == 0 and 1 or 0, wait }
