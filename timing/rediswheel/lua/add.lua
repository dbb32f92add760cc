-- Adds tasks, of one shard or of several. KEYS: those of each shard. ARGV: time or ''; then of each
-- shard its channel, the number n of its tasks, n letters that say what to do if a task is there already
-- (a: replace it, i: ignore this one, c: that is a conflict), n times id and record, and n times due time in
-- ms, or its negative delay, and id. Returns a letter for each task: a for added, also if it replaces
-- another, i for ignored, c for conflict. The records are written first. That may be refused for want of
-- memory, and then nothing has happened. An id that has no record has nothing else either.
local _, now = clock(ARGV[1])

-- supersede drops what is left of tasks that were replaced, and are in due by now: so many were there, so many
-- of them in due. The token of one that runs is worth nothing from now on; it is not told here.
local function supersede(ids, there, waiting)
  call('HDEL', state, unpack(ids))
  if there > waiting and there - waiting > call('ZREM', dead, unpack(ids)) then
    for _, id in ipairs(ids) do
      local b = find(id)
      if b then
        b.due[id] = nil
        shut(b)
      end
    end
  end
end

-- over returns whether a task that is there does not count, as it is dead, or was cancelled in its last run.
local function over(id)
  if call('ZSCORE', due, id) then return false end
  if call('ZSCORE', dead, id) then return true end
  local b = find(id)
  return b and string.find(holds(b, id), '^1')
end

-- offer adds a task, unless another keeps it from that. Returns its letter.
local function offer(letter, id, record, score)
  if letter ~= 'a' and call('HSETNX', body, id, record) == 1 then
    call('ZADD', due, score, id)
    return 'a'
  end
  if letter ~= 'a' and not over(id) then return letter end
  local there = 1 - call('HSET', body, id, record)
  local waiting = 1 - call('ZADD', due, score, id)
  if there > 0 then supersede({id}, there, waiting) end
  return 'a'
end

local answer, i = '', 2
for k = 0, #KEYS - 6, 6 do
  due, run, state, body, own, dead = KEYS[k + 1], KEYS[k + 2], KEYS[k + 3], KEYS[k + 4], KEYS[k + 5], KEYS[k + 6]
  local channel, n, letters = ARGV[i], tonumber(ARGV[i + 1]), ARGV[i + 2]
  local records, scores, first = i + 3, i + 3 + 2 * n, nil
  local all = not string.find(letters, '[^a]') -- replace all
  local there = all and n - call('HSET', body, unpack(ARGV, records, scores - 1)) or 0
  for t = 0, n - 1 do
    local s, letter = scores + 2 * t, 'a'
    local at = tonumber(ARGV[s])
    if at < now then
      at = at < 0 and now - at or now
      ARGV[s] = string.format('%d', at)
    end
    if not all then
      letter = offer(string.sub(letters, t + 1, t + 1), ARGV[s + 1], ARGV[records + 2 * t + 1], ARGV[s])
      answer = answer .. letter
    end
    if letter == 'a' and (not first or at < first) then first = at end
  end
  i = scores + 2 * n
  if all then
    answer = answer .. letters
    local waiting = n - call('ZADD', due, unpack(ARGV, scores, i - 1))
    if there > 0 then
      local ids = {}
      for t = 0, n - 1 do ids[t + 1] = ARGV[scores + 2 * t + 1] end
      supersede(ids, there, waiting)
    end
  end
  if first and first <= now + 60000 then hint(first, channel) end
end
return answer
