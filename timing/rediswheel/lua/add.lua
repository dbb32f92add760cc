-- Adds tasks, of one shard or of several. KEYS: those of each shard. ARGV: time or ''; then of each
-- shard as many letters as it gets tasks, which say what to do if a task is there already (a:
-- replace it, i: ignore this one, c: that is a conflict), as often id and record, and as often due
-- time in ms, or its negative delay. Returns a letter for each task: a for added, also if it
-- replaces another, i for ignored, c for conflict. The records are written first. That may be
-- refused for want of memory, and then nothing has happened. An id that has no record has nothing
-- else either.
local ms, us = clock(ARGV[1])
local answer, horizon, i = '', nil, 2

-- when returns the due time of what is late, or has a delay.
local function when(at)
  if string.byte(at) == 45 then return string.format('%d', (string.sub(us, -3) == '000' and ms or ms + 1) - at) end
  return #at > #ms and at or ms
end

-- supersede drops what is left of tasks that were replaced, and are in due by now: so many were
-- there, so many of them in due. The token of one that runs is worth nothing from now on; it is not
-- told here.
local function supersede(ids, there, waiting)
  call('HDEL', state, unpack(ids))
  if there > waiting and there - waiting > call('ZREM', dead, unpack(ids)) then
    local b = batches()
    for _, id in ipairs(ids) do
      local o = b.find(id)
      if o then
        o.due[id] = nil
        b.shut(o)
      end
    end
  end
end

-- offer adds a task, unless another keeps it from that: one that is not over, as it is dead, or was
-- cancelled in its last run. Returns its letter.
local function offer(letter, id, record, score)
  local function over()
    if call('ZSCORE', due, id) then return false end
    if call('ZSCORE', dead, id) then return true end
    local b = batches()
    local o = b.find(id)
    return o and string.find(b.holds(o, id), '^1')
  end
  local fresh = letter ~= 'a' and call('HSETNX', body, id, record)
  if fresh == 0 and not over() then return letter end
  if fresh ~= 1 then fresh = call('HSET', body, id, record) end
  local waiting = 1 - call('ZADD', due, score, id)
  if fresh == 0 then supersede({id}, 1, waiting) end
  return 'a'
end

for k = 0, #KEYS - 6, 6 do
  due, run, state, body, own, dead = KEYS[k + 1], KEYS[k + 2], KEYS[k + 3], KEYS[k + 4], KEYS[k + 5], KEYS[k + 6]
  local letters = ARGV[i]
  local n, all, first = #letters, not string.find(letters, '[^a]'), nil -- all: replace all
  local ats, rows, there = i + 1 + 2 * n, {}, 0
  if all then there = n - call('HSET', body, unpack(ARGV, i + 1, ats - 1)) end
  for t = 1, n do
    local at, id, letter = ARGV[ats + t - 1], ARGV[i + 2 * t - 1], 'a'
    if #at ~= #ms or at < ms then at = when(at) end
    if all then
      rows[2 * t - 1], rows[2 * t] = at, id
    else
      letter = offer(string.sub(letters, t, t), id, ARGV[i + 2 * t], at)
      answer = answer .. letter
    end
    if letter == 'a' and (not first or #at < #first or #at == #first and at < first) then first = at end
  end
  if all then
    answer = answer .. letters
    local waiting = n - call('ZADD', due, unpack(rows))
    if there > 0 then
      local ids = {}
      for t = 1, n do ids[t] = rows[2 * t] end
      supersede(ids, there, waiting)
    end
  end
  if first then
    horizon = horizon or string.format('%d', ms + 60000)
    if #first == #horizon and first <= horizon or #first < #horizon then hint(first) end
  end
  i = ats + n
end
return answer
