-- step_down: releases the scheduler's lock if the worker holds it.
-- ARGV    worker id.
-- Returns 1 if it did. Others are told, so that one takes over at once.
-- Atomic  compare and delete.

if call('GET', K.lock) ~= arg() then return 0 end
call('DEL', K.lock)
call('PUBLISH', K.notify, 'due')
return 1
