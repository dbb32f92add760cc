-- part ends those of a group that the batch still has: a backslash, which is no id, takes the place
-- of each.
local function part(token, text, ids)
  local letters, gone, ends = '', {}, string.find(text, '\n\n', 1, true)
  for _, id in ipairs(ids) do
    local from, to = string.find(text, '\n' .. id .. '\n', 1, true)
    if from and from < ends then
      letters = letters .. 'd'
      gone[#gone + 1] = id
      text = string.sub(text, 1, from) .. '\\' .. string.sub(text, to)
      ends = ends + 1 - #id
    else
      letters = letters .. 's'
    end
  end
  if #gone > 0 then
    call('HDEL', body, unpack(gone))
    local left = string.find(text, '\n', 1, true) + 1
    while string.sub(text, left, left + 1) == '\\\n' do left = left + 2 end
    if left > ends then
      call('HDEL', run, token)
    else
      call('HSET', run, token, text)
    end
  end
  return letters
end

-- again ends those of a group of repeating tasks that the batch still has: they wait for their next
-- occurrences, unless they were cancelled. ARGV[from] on: n times id and next due time. Returns
-- letters, and the earliest of these times.
local function again(token, text, from, n)
  begin()
  local b, letters, first = batches(), '', nil
  local o = b.open(token, text)
  for i = from, from + 2 * n - 2, 2 do
    local id, next = ARGV[i], ARGV[i + 1]
    letters = letters .. (o.due[id] and 'd' or 's')
    if o.due[id] and string.find(b.holds(o, id), '^1') then
      call('HDEL', body, id)
    elseif o.due[id] then
      call('ZADD', due, next, id)
      if not first or next < first then first = next end
    end
    o.due[id] = nil
  end
  b.shut(o)
  return letters, first
end

-- done ends tasks that were done: from ARGV[from] on, in groups: a token, a number of tasks, their
-- ids; or, of repeating tasks, a dash and a number, and of each id and due time of the next
-- occurrence, in ms. A group that is all of a batch, in its order, costs least. Returns a letter
-- for each task, d for done or s for stale, if the batch has it no more, and the earliest of the
-- next occurrences.
local function done(from)
  local letters, first, i = '', nil, from
  while ARGV[i] do
    local token, n = ARGV[i], ARGV[i + 1] + 0
    local text, last = call('HGET', run, token), i + 1 + n
    if n < 0 then
      n = -n
      last = i + 1 + 2 * n
    end
    if not text then
      letters = letters .. string.rep('s', n)
    elseif last > i + 1 + n then
      local some, next = again(token, text, i + 2, n)
      letters = letters .. some
      if next and (not first or next < first) then first = next end
    elseif entire(text, table.concat(ARGV, '\n', i + 2, last)) then
      call('HDEL', body, unpack(ARGV, i + 2, last))
      call('HDEL', run, token)
      letters = letters .. string.rep('d', n)
    else
      letters = letters .. part(token, text, {unpack(ARGV, i + 2, last)})
    end
    i = last + 1
  end
  return letters, first
end

