-- done ends tasks that were done: from ARGV[from] on, in groups: a token, a number of tasks, their ids,
-- and of a repeating task, which is a group of its own, the due time in ms of the next occurrence instead
-- of the number, with a dash before it. Returns a letter for each task, d for done or s for stale, if the
-- token is not that of the task any more, and the earliest of the next occurrences.
local function done(from)
  local ids, tokens, nexts, n, i = {}, {}, {}, 0, from
  local only = ARGV[from] .. ' ' -- the token, if there is one group
  if from + 1 + ARGV[from + 1] == #ARGV then
    ids = {unpack(ARGV, from + 2)}
    n, i = #ids, #ARGV + 1
  end
  while i <= #ARGV do
    local token, count = ARGV[i] .. ' ', tonumber(ARGV[i + 1])
    if count < 0 then
      nexts[n + 1] = string.sub(ARGV[i + 1], 2)
      count = 1
    end
    for k = 1, count do ids[n + k], tokens[n + k] = ARGV[i + 1 + k], token end
    n, i = n + count, i + 2 + count
  end
  local others, first = nil, nil -- others: results that are not simply done
  for i, held in ipairs(call('HMGET', state, unpack(ids))) do
    local id, token, next = ids[i], tokens[i] or only, nexts[i]
    if token == '0 ' or not held or string.find(held, token, 1, true) ~= 1 then
      others = others or {}
      others[i] = 's'
    elseif next and string.find(held, token .. '0', 1, true) == 1 then -- and was not cancelled
      others = others or {}
      others[i] = 'd'
      begin()
      call('ZADD', due, next, id)
      call('HDEL', state, id)
      call('ZREM', run, id)
      if not first or tonumber(next) < first then first = tonumber(next) end
    end
  end
  local gone, letters = ids, string.rep('d', n)
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

