-- renew: extends leases.
-- ARGV    visibility ms, then for each: id, `attempt:lease number`.
-- Returns for each: 0 lost, 1 held, 2 held and a cancel was requested.
-- Atomic  the fence and the new deadline; a missing record stays missing.

local deadline = int(now + tonumber(arg()))
local answers = {}
for i = at + 1, #ARGV, 2 do
  local id, fence = ARGV[i], RUNNING .. ':' .. ARGV[i + 1]
  local r = pcall_('HMGET', K.task .. id, 's', 'c')
  -- What may stand behind the fence is told in record.lua.
  if r.err or (r[1] ~= fence and r[1] ~= fence .. '+') then
    push(answers, 0)
  else
    push(leases_new, deadline, id)
    push(answers, r[2] and 2 or 1)
  end
end
flush()
return answers
