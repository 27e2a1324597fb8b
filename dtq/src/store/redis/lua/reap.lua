-- reap: redelivers tasks whose lease has lapsed (SPEC 4.4).
-- ARGV    limit.
-- Returns {redelivered ids, dead ids, 1 if more have lapsed, ms until the next deadline or -1, notes}.
-- Atomic  each task: the lease is the lapsed one, next attempt, new entry for old, status, event. The
--         lease number grows, so that the lost holder's writes can never match again.

records()
local limit = tonumber(arg())
local redelivered, dead = {}, {}
local lost = '{"class":"worker_lost","message":"the lease lapsed: its worker stopped, stalled or was cut off","retryable":true}'
local lapsed = call('ZRANGEBYSCORE', K.leases, '-inf', now_text, 'LIMIT', 0, limit)
for _, id in ipairs(lapsed) do
  push(leases_gone, id)
  local r, why = load(id)
  if not r then
    note(id, 'its lease lapsed but its record is ' .. why)
  elseif newer(r) then
    note(id, 'its record has the newer version ' .. r.v .. ' and is left alone')
  elseif not r.s or (r.s == RUNNING and damage(r)) then
    quarantine(r, damage(r) or 'field s is missing')
  elseif r.s == RUNNING then
    r.l = (r.l or 0) + 1
    if r.c then
      remember(r, 'lost', lost)
      finish(r, CANCELLED)
    elseif r.a >= r.m then
      remember(r, 'lost', lost)
      die(r, lost)
      push(dead, id)
    else
      remember(r, 'lost', lost)
      leave(r)
      local worker = worker_of(r)
      r.a = r.a + 1
      move(r, QUEUED, 'e', enter(r), 'E', lost)
      call('HDEL', task_key(id), 'w', 'D')
      emit('TASK_REDELIVERED', r, worker)
      push(redelivered, id)
    end
  end
end
flush()
local head = call('ZRANGE', K.leases, 0, 0, 'WITHSCORES')
local wait = head[2] and math.max(tonumber(head[2]) - now, 0) or -1
return { redelivered, dead, wait == 0 and 1 or 0, wait, notes }
