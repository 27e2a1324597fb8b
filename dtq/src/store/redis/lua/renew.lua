-- renew: extends leases.
-- ARGV    visibility ms, then for each: id, lease number.
-- Returns for each: 0 lost, 1 held, 2 held and a cancel was requested.
-- Atomic  the fence and the new deadline; a missing record stays missing.

local deadline = int(now + tonumber(arg()))
local answers = {}
for i = at + 1, #ARGV, 2 do
  local id, lease = ARGV[i], ARGV[i + 1]
  local r = pcall_('HMGET', K.task .. id, 's', 'l', 'c')
  if r.err or tonumber(r[1]) ~= RUNNING or r[2] ~= lease then
    push(answers, 0)
  else
    push(leases_new, deadline, id)
    push(answers, r[3] and 2 or 1)
  end
end
flush()
return answers
