-- What every script stands on: the clock, the keys, what is gathered and written at the end.
--
-- Generated above this file (see scripts.rs): K (key names and prefixes), S (settings), the status
-- codes PENDING .. EXPIRED, and tables(), which sets STATUS and CODES (code -> name, text) and MOVES
-- (the one table of moves).
-- Writes that many items share are gathered and made by flush(): one variadic command each.

local call, pcall_ = redis.call, redis.pcall
local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
-- The same as text, by string work alone: formatting a number costs as much as a command.
local now_text = time[1] .. string.sub('000000' .. time[2], -6, -4)

local at = 0
local function arg()
  at = at + 1
  return ARGV[at]
end

-- Whole numbers as text: Lua's own formatting loses digits beyond the fourteenth.
local function int(x) return string.format('%.0f', x) end

local function stream_key(queue, priority) return K.stream .. queue .. ':p' .. priority end

-- id, text; logged by the caller.
local notes = {}
local function note(id, text)
  notes[#notes + 1] = tostring(id or '')
  notes[#notes + 1] = text
end

-- Which streams of queues may hold entries: queue -> priorities as digits, highest first. What was ever
-- added to, and not found empty since.
local standing = {}

-- What somebody else made of the key is dropped; recall() finds again what stood in it.
local function of_ready(reply)
  if not reply.err then return reply end
  call('DEL', K.ready)
  note(nil, K.ready .. ' was no hash: removed')
  return {}
end

local function ready(queues)
  for from = 1, #queues, 1000 do
    local last = math.min(from + 999, #queues)
    local values = of_ready(pcall_('HMGET', K.ready, unpack(queues, from, last)))
    for i = from, last do standing[queues[i]] = values[i - from + 1] or '' end
  end
  return standing
end

local function stands(queue, digits)
  standing[queue] = digits
  if digits == '' then call('HDEL', K.ready, queue) else call('HSET', K.ready, queue, digits) end
end

local acks, leases_new, leases_gone = {}, {}, {}
local schedule_new, schedule_gone, claims_gone = {}, {}, {}
local recent_new, woken, counts, seen_queues, filled = {}, {}, {}, {}, {}
local earliest_due

local function push(list, a, b)
  list[#list + 1] = a
  if b ~= nil then list[#list + 1] = b end
end

local function ack(stream, entry)
  local list = acks[stream]
  if not list then list = {}; acks[stream] = list end
  list[#list + 1] = entry
end

local function count(queue, what, n)
  local of = counts[queue]
  if not of then of = {}; counts[queue] = of end
  of[what] = (of[what] or 0) + n
end

-- The caller writes field d of the record: what tells a repair when it is due.
local function schedule(id, queue, due)
  push(schedule_new, int(due), id)
  count(queue, 'scheduled', 1)
  if not earliest_due or due < earliest_due then earliest_due = due end
end

-- The task waits no more: for its delay or backoff, or as a claim.
local function unschedule(id, queue)
  push(schedule_gone, id)
  push(claims_gone, id)
  if queue then count(queue, 'scheduled', -1) end
end

local function wake(queue) woken[queue] = true end

-- Entries were added to the stream of that priority (a digit).
local function fill(queue, priority)
  local of = filled[queue]
  if not of then of = {}; filled[queue] = of end
  of[priority] = true
  woken[queue], seen_queues[queue] = true, true
end

-- A queue whose `ready` was read may hold what it is not known to hold: an entry written by hand, a lost key.
local function recall(queue)
  standing[queue] = standing[queue] or ''
  for digit in string.gmatch('9876543210', '%d') do
    if not string.find(standing[queue], digit, 1, true) then
      local length = pcall_('XLEN', stream_key(queue, digit))
      if type(length) == 'number' and length > 0 then
        note(nil, 'queue ' .. queue .. ' had been forgotten to hold entries of priority ' .. digit)
        fill(queue, digit)
      end
    end
  end
end

-- Finished entries leave their stream. Deleting one walks its node of the stream from the node's start,
-- so a batch first cuts off the head of the stream up to the oldest entry that is not finished: all
-- that was delivered before it and is not pending is done with.
local function position(entry)
  local ms, seq = string.match(entry, '^(%d+)-(%d+)$')
  return tonumber(ms), tonumber(seq)
end

local function remove(stream, entries)
  call('XACK', stream, 'workers', unpack(entries))
  if #entries >= 8 then
    local groups = pcall_('XINFO', 'GROUPS', stream)
    local group = groups[1]
    if #groups == 1 and group[2] == 'workers' then
      -- The reply: name, its value, consumers, .., pending, .., last-delivered-id, ..
      local bound
      if group[6] == 0 then
        local ms, seq = string.match(group[8], '^(%d+)-(%d+)$')
        bound = ms .. '-' .. int(seq + 1)
      else
        bound = call('XPENDING', stream, 'workers')[2]
      end
      call('XTRIM', stream, 'MINID', '=', bound)
      local ms, seq = position(bound)
      local left = {}
      for _, entry in ipairs(entries) do
        local m, n = position(entry)
        if m > ms or (m == ms and n >= seq) then left[#left + 1] = entry end
      end
      if #left == 0 then return end
      entries = left
    end
  end
  call('XDEL', stream, unpack(entries))
end

local function flush()
  for stream, entries in pairs(acks) do remove(stream, entries) end
  if #leases_gone > 0 then call('ZREM', K.leases, unpack(leases_gone)) end
  if #leases_new > 0 then call('ZADD', K.leases, unpack(leases_new)) end
  if #schedule_gone > 0 then call('ZREM', K.schedule, unpack(schedule_gone)) end
  if #schedule_new > 0 then
    local head = call('ZRANGE', K.schedule, 0, 0, 'WITHSCORES')
    call('ZADD', K.schedule, unpack(schedule_new))
    -- The leader sleeps until the head is due: tell it if that has moved forward.
    if not head[2] or earliest_due < tonumber(head[2]) then call('PUBLISH', K.notify, 'due') end
  end
  if #claims_gone > 0 then call('ZREM', K.claimed, unpack(claims_gone)) end
  if #recent_new > 0 then
    call('ZADD', K.recent, unpack(recent_new))
    call('ZREMRANGEBYRANK', K.recent, 0, -10001)
  end
  for queue, of in pairs(counts) do
    for what, n in pairs(of) do
      if n ~= 0 then call('HINCRBY', K.queue .. queue .. ':stats', what, n) end
    end
  end
  for queue, priorities in pairs(filled) do
    local had = standing[queue] or ready({ queue })[queue]
    local digits = had
    for priority in pairs(priorities) do
      if not string.find(digits, priority, 1, true) then digits = digits .. priority end
    end
    if digits ~= had then
      local sorted = {}
      for digit in string.gmatch(digits, '%d') do sorted[#sorted + 1] = digit end
      table.sort(sorted, function(a, b) return a > b end)
      stands(queue, table.concat(sorted))
    end
  end
  for queue in pairs(seen_queues) do call('SADD', K.queues, queue) end
  -- One token wakes one waiter; a list that holds one already needs no second.
  for queue in pairs(woken) do
    local list = K.queue .. queue .. ':wake'
    if call('LLEN', list) == 0 then call('RPUSH', list, '1') end
  end
end
