-- emit(type, task, worker, metadata): publishes a lifecycle event (SPEC 10) if anybody listens.
-- `task` has id, q, n and a; `metadata` is a JSON text or nil. Texts from records are not trusted.

local listening
local event_number = 0

local function safe(text) return (string.gsub(tostring(text or ''), '[^%w_.:/-]', '?')) end

local function is_listened_to()
  if listening == nil then
    listening = S.events and
      (call('PUBSUB', 'NUMSUB', K.events)[2] > 0 or call('PUBSUB', 'NUMPAT') > 0)
  end
  return listening
end

local function emit(kind, task, worker, metadata)
  if not is_listened_to() then return end
  event_number = event_number + 1
  call('PUBLISH', K.events, table.concat({
    '{"event_id":"', time[1], '-', time[2], '-', event_number,
    '","ts":', now_text, ',"type":"', kind,
    '","task_id":"', safe(task.id), '","queue":"', safe(task.q),
    '","task_type":"', safe(task.n), '","attempt":', tostring(tonumber(task.a) or 0),
    ',"worker_id":', worker and ('"' .. safe(worker) .. '"') or 'null',
    metadata and (',"metadata":' .. metadata) or '', '}'
  }))
end
