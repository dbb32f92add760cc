-- part ends those of a group that the batch still has.
local function part(token, text, ids, next)
  local b, letters, gone, again = batches(), '', {}, false
  local o = b.open(token, text)
  for _, id in ipairs(ids) do
    local held = o.due[id]
    letters = letters .. (held and 'd' or 's')
    if held and next and string.find(b.holds(o, id), '^0') then
      again = true
    elseif held then
      gone[#gone + 1] = id
    end
    o.due[id] = nil
  end
  if #gone > 0 then call('HDEL', body, unpack(gone)) end
  if again then
    begin()
    call('ZADD', due, next, ids[1])
  end
  if again or #gone > 0 then b.shut(o) end
  return letters, again
end

-- done ends tasks that were done: from ARGV[from] on, in groups: a token, a number of tasks, their ids,
-- and of a repeating task, which is a group of its own, the due time in ms of the next occurrence instead
-- of the number, with a dash before it. A group that is all of a batch, in its order, costs least. Returns
-- a letter for each task, d for done or s for stale, if the batch has it no more, and the earliest of the
-- next occurrences.
local function done(from)
  local letters, first, i = '', nil, from
  while ARGV[i] do
    local token, n, next = ARGV[i], ARGV[i + 1] + 0, nil
    if n < 0 then
      next = string.sub(ARGV[i + 1], 2)
      n = 1
    end
    local last = i + 1 + n
    local text = call('HGET', run, token)
    if not text then
      letters = letters .. string.rep('s', n)
    elseif not next and entire(text, table.concat(ARGV, '\n', i + 2, last)) then
      call('HDEL', body, unpack(ARGV, i + 2, last))
      call('HDEL', run, token)
      letters = letters .. string.rep('d', n)
    else
      local some, again = part(token, text, {unpack(ARGV, i + 2, last)}, next)
      letters = letters .. some
      if again and (not first or next < first) then first = next end
    end
    i = last + 1
  end
  return letters, first
end

