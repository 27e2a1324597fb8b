-- cancel: ends a waiting task at once, or asks the worker of a running one (SPEC 9.1).
-- ARGV    id.
-- Returns {'not_found'} {'ended', status code} {'requested'} {'done'}.
-- Atomic  status, entry and schedule, key, event.

records()
local id = arg()
local r = load(id)
if not r or r.T then return { 'not_found' } end
if r.s and r.s >= SUCCEEDED then return { 'ended', r.s } end
if r.s == RUNNING then
  call('HSET', task_key(id), 'c', '1')
  local incarnation = r.w and string.match(r.w, '/(.*)$')
  if incarnation then call('PUBLISH', K.notify .. ':' .. incarnation, 'cancel ' .. id) end
  return { 'requested' }
end
if damage(r) then
  quarantine(r, damage(r), 'default')
else
  if r.s ~= QUEUED then unschedule(id, r.q) end
  finish(r, CANCELLED)
end
flush()
return { 'done' }
