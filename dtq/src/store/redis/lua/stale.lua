-- stale: claims older than a span go back to the schedule, due now (SPEC 8.3).
-- ARGV    span ms.
-- Returns how many went back.
-- Atomic  the move.

local ids = call('ZRANGEBYSCORE', K.claimed, '-inf', int(now - tonumber(arg())), 'LIMIT', 0, 1000)
if #ids > 0 then
  local due = {}
  for _, id in ipairs(ids) do push(due, now_text, id) end
  call('ZADD', K.schedule, unpack(due))
  call('ZREM', K.claimed, unpack(ids))
  call('PUBLISH', K.notify, 'due')
end
return #ids
