-- What one claim gives is a batch: it has one token and one lease. The hash run has it under its
-- token, as lines: the end of the lease in ms, the ids, an empty line, the due times, an empty
-- line, and of those that were started before, or cancelled meanwhile, id and state in turns. Ids
-- and states have no newlines; a backslash in place of an id is one that has ended. What ends as it
-- was given is never taken apart; for all else there is this.
local function batches()
  local b = {}

  -- open takes a batch apart: ids in order, due time and state by id. Who ends a run sets its due
  -- time to nil.
  function b.open(token, text)
    local lease, ids, dues, states = string.match(text, '^(%d+)\n(.-)\n\n(.-)\n\n(.*)$')
    local o = {token = token, lease = lease, ids = {}, due = {}, state = {}}
    for id in string.gmatch(ids, '[^\n]+') do o.ids[#o.ids + 1] = id end
    local n = 0
    for at in string.gmatch(dues, '[^\n]+') do
      n = n + 1
      if o.ids[n] ~= '\\' then o.due[o.ids[n]] = whole(at) end
    end
    for id, old in string.gmatch(states, '([^\n]+)\n([^\n]+)') do o.state[id] = old end
    return o
  end

  -- shut writes what is left of a batch.
  function b.shut(o)
    local ids, dues, states = {}, {}, {}
    for _, id in ipairs(o.ids) do
      if o.due[id] then
        ids[#ids + 1], dues[#dues + 1] = id, o.due[id]
        if o.state[id] then states[#states + 1] = id .. '\n' .. o.state[id] end
      end
    end
    if #ids == 0 then
      call('HDEL', run, o.token)
    else
      call('HSET', run, o.token, o.lease .. '\n' .. table.concat(ids, '\n') .. '\n\n' ..
        table.concat(dues, '\n') .. '\n\n' .. table.concat(states, '\n'))
    end
  end

  -- holds returns the state of a task in a batch.
  function b.holds(o, id) return o.state[id] or '0 0 1 ' .. o.due[id] .. ' ' end

  -- find returns the batch that has a task. That looks through all that runs in the shard.
  function b.find(id)
    local all, line = call('HGETALL', run), '\n' .. id .. '\n'
    for i = 2, #all, 2 do
      local at = string.find(all[i], line, 1, true)
      if at and at < string.find(all[i], '\n\n', 1, true) then return b.open(all[i - 1], all[i]) end
    end
  end

  return b
end

