-- requeue: puts claimed tasks into their queues, or ends them (SPEC 8.2).
-- ARGV    ids ...
-- Returns {how many were queued, notes}.
-- Atomic  each task: claim checked, status, entry, claim removed, event. A claim that is gone was
--         dealt with by somebody else; one damaged task does not stop the others.

records()
local queued = 0
local cancelled_any = call('SCARD', K.cancelled) > 0
for i = 1, #ARGV do
  local id = ARGV[i]
  if call('ZSCORE', K.claimed, id) then
    local r, why = load(id)
    if not r then
      if why == 'wrong type' then note(id, 'dropped from the schedule: its record is ' .. why) end
      push(claims_gone, id)
    elseif newer(r) then
      note(id, 'its record has the newer version ' .. r.v .. ' and is left alone')
    elseif (not r.s or r.s == PENDING or r.s == RETRYING) and damage(r) then
      unschedule(id, r.q)
      quarantine(r, damage(r), 'default')
    elseif r.s ~= PENDING and r.s ~= RETRYING then
      push(claims_gone, id)
    else
      unschedule(id, r.q)
      if r.c or (cancelled_any and call('SREM', K.cancelled, id) == 1) then
        finish(r, CANCELLED)
      elseif r.x and now >= r.x then
        finish(r, EXPIRED)
      else
        local retrying = r.s == RETRYING
        if retrying then r.a = r.a + 1 end
        move(r, QUEUED, 'e', enter(r))
        call('HDEL', task_key(id), 'd')
        emit(retrying and 'TASK_RETRIED' or 'TASK_QUEUED', r)
        queued = queued + 1
      end
    end
  end
end
flush()
return { queued, notes }
