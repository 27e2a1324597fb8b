-- migrate: takes tasks out of this deployment, and puts those of another in (see Store::take_out).
-- ARGV    'take', nonce (it makes the marks of this taking its own), then pairs: 'task', id | 'letter', entry of the dead letters | 'key', queue:key
--         'put', items, then for each: mark, kind, and
--            task:   id, name, queue, priority, attempt, 'queued' or when it is due or '', when it leaves or '',
--                    key, its text, when it leaves or '', pairs, then fields of the record,
--                    pairs, then fields of the dead letter (0: there is none)
--            letter: pairs, then its fields
--            key:    queue:key, its text, when it leaves or ''
--         'drop', marks ...    'forget', marks ...
-- Returns take: how many were taken; put: how many were new; drop, forget: 0.
-- Atomic  each item: it leaves every structure and stands, packed, in K.moving; or enters them and its mark
--         stands in K.moved, by which a repeated put is known.

records()
local what = arg()

local function packed_list(list)
  local parts = {}
  for i, text in ipairs(list) do parts[i] = #text .. ':' .. text end
  return table.concat(parts)
end

-- The key's text and when it leaves, if it belongs to the task (nil: to anybody).
local function take_key(name, id)
  local text = pcall_('GET', name)
  if type(text) ~= 'string' then return '', '' end
  if id and read_idempotency(name) ~= id then return '', '' end
  local leaves = call('PEXPIRETIME', name)
  call('DEL', name)
  return text, leaves > 0 and int(leaves) or ''
end

local function take_letter(entry)
  local found = call('XRANGE', K.dead_letters, entry, entry)[1]
  if found then call('XDEL', K.dead_letters, entry) end
  return found and found[2] or {}
end

local take = {}
local nonce

local function aside(mark, item) call('HSET', K.moving, mark .. ':' .. nonce, packed_list(item)) end

function take.task(id)
  local key = task_key(id)
  local flat = pcall_('HGETALL', key)
  local r = from_flat(id, flat)
  if not r or newer(r) or damage(r) or r.T then return 0 end
  local letter = {}
  if r.s == QUEUED then leave(r)
  elseif r.s == PENDING or r.s == RETRYING then unschedule(id, r.q)
  elseif r.s == DEAD_LETTERED and r.k then
    letter = take_letter(r.k)
    call('ZREM', K.recent, id)
  else return 0 end
  local text, leaves = '', ''
  if r.i then text, leaves = take_key(idempotency_key(r.q, r.i), id) end
  local goes = call('PEXPIRETIME', key)
  local item = { 'task', id, goes > 0 and int(goes) or '', text, leaves, tostring(#flat) }
  for _, part in ipairs(flat) do push(item, part) end
  for _, part in ipairs(letter) do push(item, part) end
  aside('t:' .. id, item)
  call('DEL', key, K.result .. id)
  return 1
end

function take.letter(entry)
  local fields = take_letter(entry)
  if #fields == 0 then return 0 end
  local item = { 'letter' }
  for _, part in ipairs(fields) do push(item, part) end
  aside('l:' .. entry, item)
  return 1
end

function take.key(name)
  local _, state = read_idempotency(K.idempotency .. name)
  if state ~= 'completed' and state ~= 'failed' then return 0 end
  local text, leaves = take_key(K.idempotency .. name)
  aside('k:' .. name, { 'key', name, text, leaves })
  return 1
end

local function read_pairs()
  local list = {}
  for _ = 1, 2 * tonumber(arg()) do push(list, arg()) end
  return list
end

local function put_key(name, text, leaves, again)
  if text == '' or again then return end
  -- One that a task of this deployment holds stays that task's.
  if leaves == '' then call('SET', K.idempotency .. name, text, 'NX')
  elseif tonumber(leaves) > now then call('SET', K.idempotency .. name, text, 'NX', 'PXAT', leaves) end
end

local function put_letter(fields)
  return call('XADD', K.dead_letters, 'MAXLEN', '~', S.dlq_maxlen, '*', unpack(fields))
end

local put = {}

function put.task(again)
  local r = { id = arg(), n = arg(), q = arg(), y = tonumber(arg()), a = tonumber(arg()) }
  local stands, leaves = arg(), arg()
  local key, text, key_leaves = arg(), arg(), arg()
  local fields, letter = read_pairs(), read_pairs()
  if again or call('EXISTS', task_key(r.id)) == 1 then return end
  put_key(key, text, key_leaves)
  if #letter > 0 then push(fields, 'k', put_letter(letter)) end
  if stands == 'queued' then
    push(fields, 'e', enter(r))
    emit('TASK_QUEUED', r)
  elseif stands ~= '' then
    push(fields, 'd', stands)
    schedule(r.id, r.q, tonumber(stands))
    emit('TASK_SCHEDULED', r, nil, '{"due_ms":' .. stands .. '}')
  else
    push(recent_new, now_text, r.id)
  end
  seen_queues[r.q] = true
  call('HSET', task_key(r.id), unpack(fields))
  if leaves ~= '' then call('PEXPIREAT', task_key(r.id), leaves) end
end

function put.letter(again)
  local fields = read_pairs()
  if not again then put_letter(fields) end
end

function put.key(again)
  put_key(arg(), arg(), arg(), again)
end

local answer = 0
if what == 'take' then
  nonce = arg()
  while at < #ARGV do
    local kind = arg()
    answer = answer + take[kind](arg())
  end
elseif what == 'put' then
  for _ = 1, tonumber(arg()) do
    local mark, kind = arg(), arg()
    local again = call('SADD', K.moved, mark) == 0
    if not again then answer = answer + 1 end
    put[kind](again)
  end
else
  local key = what == 'drop' and K.moving or K.moved
  for i = at + 1, #ARGV do call(what == 'drop' and 'HDEL' or 'SREM', key, ARGV[i]) end
end
flush()
return answer
