-- maintain: slow upkeep. Finds what damage by hand has stranded.
-- ARGV    'workers' | 'queue', queue | 'scan', cursor, count.
-- Returns workers: notes; queue: notes; scan: {next cursor, notes}.
-- Atomic  each task's repair.

records()
local what = arg()

-- Entries read a minute ago or earlier that no lease accounts for: their record was deleted, or the lease.
local function sweep(queue)
  ready({ queue })
  recall(queue)
  for priority = 0, 9 do
    local stream = stream_key(queue, priority)
    local reply = pcall_('XPENDING', stream, 'workers', 'IDLE', 60000, '-', '+', 100)
    if not reply.err then
      for _, pending in ipairs(reply) do
        local entry = call('XRANGE', stream, pending[1], pending[1])[1]
        local id
        if entry then
          for i = 1, #entry[2], 2 do if entry[2][i] == 'i' then id = entry[2][i + 1] end end
        end
        if not entry then
          call('XACK', stream, 'workers', pending[1])
        elseif not id or #id ~= 22 then
          ack(stream, pending[1])
        else
          local r, why = load(id)
          if not r then
            note(id, 'quarantined: its record is ' .. why)
            bury(id, queue, nil, 0, nil, error_json('DamagedRecord', 'the record is ' .. why))
            ack(stream, pending[1])
            push(leases_gone, id)
          elseif newer(r) then
            -- Left alone.
          elseif not r.s then
            r.e = r.e or pending[1]
            quarantine(r, 'field s is missing', queue)
          elseif r.s >= SUCCEEDED or (r.e and r.e ~= pending[1]) then
            ack(stream, pending[1])
          elseif r.s == QUEUED then
            -- Read but not leased, which no script does: it goes in again.
            note(id, 'put back into its queue: its entry had been read by hand')
            if not damage(r) then
              leave(r)
              call('HSET', task_key(id), 'e', enter(r))
            else
              quarantine(r, damage(r), queue)
            end
          elseif r.s == RUNNING and not call('ZSCORE', K.leases, id) then
            note(id, 'its lease had vanished: it lapses now')
            push(leases_new, now_text, id)
          end
        end
      end
    end
  end
end

-- A live record that no structure holds any more goes back to where its status says.
local function scan(cursor, n)
  local reply = call('SCAN', cursor, 'MATCH', K.task .. '*', 'COUNT', n)
  for _, key in ipairs(reply[2]) do
    local id = string.sub(key, #K.task + 1)
    local r = load(id)
    if not r or newer(r) or (r.s and r.s >= SUCCEEDED) then
      -- Has ended, or is nothing of ours.
    elseif damage(r) then
      -- Whatever holds it quarantines it when its time comes; one that has ended leaves by itself.
      local held = call('ZSCORE', K.schedule, id) or call('ZSCORE', K.claimed, id) or call('ZSCORE', K.leases, id)
        or (r.e and r.q and #call('XRANGE', stream_key(r.q, r.y), r.e, r.e) > 0)
      if not held and call('PTTL', key) < 0 then quarantine(r, damage(r), 'default') end
    else
      if r.s == QUEUED and (not r.e or #call('XRANGE', stream_key(r.q, r.y), r.e, r.e) == 0) then
        note(id, 'put back into its queue: its entry had been deleted')
        call('HSET', task_key(id), 'e', enter(r))
      elseif r.s == RUNNING and not call('ZSCORE', K.leases, id) then
        note(id, 'its lease had vanished: it lapses now')
        push(leases_new, now_text, id)
      elseif (r.s == PENDING or r.s == RETRYING) and not call('ZSCORE', K.schedule, id)
        and not call('ZSCORE', K.claimed, id) then
        note(id, 'put back into the schedule, from which it had been deleted')
        -- Never early: the record tells its due time, unless that was deleted too.
        local due = whole(call('HGET', key, 'd')) or now
        push(schedule_new, int(due), id)
        earliest_due = math.min(earliest_due or due, due)
      end
    end
  end
  return reply[1]
end

if what == 'workers' then
  for _, id in ipairs(call('SMEMBERS', K.workers)) do
    if call('EXISTS', K.worker .. id) == 0 then call('SREM', K.workers, id) end
  end
  for _, id in ipairs(call('SMEMBERS', K.cancelled)) do
    local r = load(id)
    if not r or not r.s or r.s >= SUCCEEDED then call('SREM', K.cancelled, id) end
  end
  return notes
elseif what == 'queue' then
  sweep(arg())
  flush()
  return notes
end
local next_cursor = scan(arg(), arg())
flush()
return { next_cursor, notes }
