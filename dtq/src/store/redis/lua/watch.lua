-- watch: asks for a notice when the task ends.
-- ARGV    id.
-- Returns the status code, or -1 without a record.
-- Atomic  mark and status: a task that ends later finds the mark.

records()
local id = arg()
local r = load(id)
if not r or r.T or not r.s then return -1 end
if r.s < SUCCEEDED and not r.W then call('HSET', task_key(id), 'W', 1) end
return r.s
