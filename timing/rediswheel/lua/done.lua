-- done ends tasks that were done: from ARGV[from] on, of each its id, token, and due time in ms of the
-- next occurrence or ''. Returns a letter for each, d for done or s for stale, if the token is not that
-- of the task any more, and the earliest of the next occurrences.
local function done(from)
  local ids, others, first = {}, nil, nil -- others: results that are not simply done
  for i = from, #ARGV, 3 do ids[(i - from) / 3 + 1] = ARGV[i] end
  local states = call('HMGET', state, unpack(ids))
  for i, id in ipairs(ids) do
    local given, next = ARGV[from + i * 3 - 2] .. ' ', ARGV[from + i * 3 - 1]
    local found = states[i] and string.sub(states[i], 1, #given + 1) -- the token and whether it was cancelled
    if found ~= given .. '0' and found ~= given .. '1' or given == '0 ' then
      others = others or {}
      others[i] = 's'
    elseif next ~= '' and found == given .. '0' then
      others = others or {}
      others[i] = 'd'
      begin()
      call('ZADD', due, next, id)
      call('HDEL', state, id)
      call('ZREM', run, id)
      if not first or tonumber(next) < first then first = tonumber(next) end
    end
  end
  local gone, letters = ids, string.rep('d', #ids)
  if others then
    gone, letters = {}, ''
    for i, id in ipairs(ids) do
      if not others[i] then gone[#gone + 1] = id end
      letters = letters .. (others[i] or 'd')
    end
  end
  if #gone > 0 then
    call('HDEL', state, unpack(gone))
    call('HDEL', body, unpack(gone))
    call('ZREM', run, unpack(gone))
  end
  return letters, first
end

