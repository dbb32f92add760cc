-- What one claim gives is a batch: it has one token and one lease. The hash run has it under its token, as
-- lines: the end of the lease in ms, the ids, an empty line, the due times, an empty line, and of those that
-- were started before, or cancelled meanwhile, id and state in turns. Ids and states have no newlines.
local function pack(lease, ids, dues, states)
  return lease .. '\n' .. table.concat(ids, '\n') .. '\n\n' .. table.concat(dues, '\n') .. '\n\n' .. table.concat(states, '\n')
end

-- entire returns whether ids, each with a newline after it but the last, are all that is left of a batch, in
-- its order.
local function entire(text, ids)
  return string.find(text, '\n' .. ids .. '\n\n', 1, true) == string.find(text, '\n', 1, true)
end

-- open takes a batch apart. Who ends a run sets its due to nil.
local function open(token, text)
  local lease, ids, dues, states = string.match(text, '^(%d+)\n(.-)\n\n(.-)\n\n(.*)$')
  local b = {token = token, lease = lease, ids = {}, due = {}, state = {}}
  for id in string.gmatch(ids, '[^\n]+') do b.ids[#b.ids + 1] = id end
  local n = 0
  for at in string.gmatch(dues, '[^\n]+') do
    n = n + 1
    b.due[b.ids[n]] = whole(at)
  end
  for id, old in string.gmatch(states, '([^\n]+)\n([^\n]+)') do b.state[id] = old end
  return b
end

-- shut writes what is left of a batch.
local function shut(b)
  local ids, dues, states = {}, {}, {}
  for _, id in ipairs(b.ids) do
    if b.due[id] then
      ids[#ids + 1], dues[#dues + 1] = id, b.due[id]
      if b.state[id] then states[#states + 1] = id .. '\n' .. b.state[id] end
    end
  end
  if #ids == 0 then
    call('HDEL', run, b.token)
  else
    call('HSET', run, b.token, pack(b.lease, ids, dues, states))
  end
end

-- holds returns the state of a task in a batch.
local function holds(b, id) return b.state[id] or '0 0 1 ' .. b.due[id] .. ' ' end

-- find returns the batch that has a task. That looks through all that runs in the shard.
local function find(id)
  local all, line = call('HGETALL', run), '\n' .. id .. '\n'
  for i = 2, #all, 2 do
    local at = string.find(all[i], line, 1, true)
    if at and at < string.find(all[i], '\n\n', 1, true) then return open(all[i - 1], all[i]) end
  end
end

