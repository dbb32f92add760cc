-- done ends tasks that were done: from ARGV[from] on, in groups: a token, a number of tasks, their ids,
-- and of a repeating task, which is a group of its own, the due time in ms of the next occurrence instead
-- of the number, with a dash before it. A group that is all of a batch, in its order, costs least. Returns
-- a letter for each task, d for done or s for stale, if the batch has it no more, and the earliest of the
-- next occurrences.

-- part ends those of a group that the batch still has.
local function part(b, ids, next)
  local letters, gone, again = '', {}, false
  for _, id in ipairs(ids) do
    local held = b.due[id]
    letters = letters .. (held and 'd' or 's')
    if held and next and string.find(holds(b, id), '^0') then
      again = true
    elseif held then
      gone[#gone + 1] = id
    end
    b.due[id] = nil
  end
  if #gone > 0 then call('HDEL', body, unpack(gone)) end
  if again then
    begin()
    call('ZADD', due, next, ids[1])
  end
  if again or #gone > 0 then shut(b) end
  return letters, again
end

local function done(from)
  local letters, first, i = '', nil, from
  while ARGV[i] do
    local token, n, next = ARGV[i], tonumber(ARGV[i + 1]), nil
    if n < 0 then
      next = -n
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
      local some, again = part(open(token, text), {unpack(ARGV, i + 2, last)}, next)
      letters = letters .. some
      if again and (not first or next < first) then first = next end
    end
    i = last + 1
  end
  return letters, first
end

