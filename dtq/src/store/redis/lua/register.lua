-- register: a worker's registration and its sign of life (SPEC 7.9).
-- ARGV    mode (start, take_over, beat, leave), worker id, incarnation, ttl ms, field-value pairs ...
-- Returns {'done'} or {'taken', incarnation, ms since its last sign of life}.
-- Atomic  the check of the incarnation and the write.

local mode, id, incarnation, ttl = arg(), arg(), arg(), arg()
local key = K.worker .. id
local other = call('HGET', key, 'incarnation')
if other and other ~= incarnation and mode ~= 'take_over' then
  if mode == 'leave' then return { 'done' } end
  return { 'taken', other, int(now - (tonumber(call('HGET', key, 'beat')) or 0)) }
end
if mode == 'leave' then
  call('DEL', key)
  call('SREM', K.workers, id)
  emit('WORKER_STOPPED', { id = '' }, id)
  return { 'done' }
end
call('HSET', key, 'incarnation', incarnation, 'beat', now_text, unpack(ARGV, at + 1))
call('PEXPIRE', key, ttl)
call('SADD', K.workers, id)
if mode ~= 'beat' then emit('WORKER_STARTED', { id = '' }, id) end
return { 'done' }
