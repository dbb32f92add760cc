-- Adds tasks, of one shard or of several. KEYS: those of each shard. ARGV: time or ''; then of each
-- shard its channel and a number of tasks, and of each of these: id, policy (replace, ignore, fail),
-- due time in ms or its negative delay, record. Returns a letter for each task: a for added, also if it
-- replaces another, i for ignored, c for conflict. The records are written first. That may be refused
-- for want of memory, and then nothing has happened. An id that has no record has nothing else either.
local _, now = clock(ARGV[1])

-- offer writes the record of a task that does not replace another, and returns its letter.
local function offer(id, policy, record)
  if call('HSETNX', body, id, record) == 1 then return 'a' end
  local old = call('HGET', state, id)
  if not old or not (string.find(old, '^%d+ 1') or call('ZSCORE', dead, id)) then
    return policy == 'ignore' and 'i' or 'c'
  end -- one that is dead, or cancelled in its last run, does not count
  call('HSET', body, id, record)
  call('HDEL', state, id)
  call('ZREM', run, id)
  call('ZREM', dead, id)
  return 'a'
end

-- replace writes records of tasks that replace others. What runs is not told here; its token is worth
-- nothing from now on.
local function replace(ids, records)
  if #ids == 0 or call('HSET', body, unpack(records)) == #ids then return end
  for i, old in ipairs(call('HMGET', state, unpack(ids))) do
    if old then
      call('HDEL', state, ids[i])
      call('ZREM', run, ids[i])
      call('ZREM', dead, ids[i])
    end
  end
end

local letters, i = '', 2
for k = 0, #KEYS - 6, 6 do
  due, run, state, body, own, dead = KEYS[k + 1], KEYS[k + 2], KEYS[k + 3], KEYS[k + 4], KEYS[k + 5], KEYS[k + 6]
  local channel, first, scores, ids, records, n, m = ARGV[i], nil, {}, {}, {}, 0, 0
  local last = i + 1 + 4 * ARGV[i + 1]
  for t = i + 2, last, 4 do
    local id, policy, score, letter = ARGV[t], ARGV[t + 1], ARGV[t + 2], 'a'
    if policy == 'replace' then
      ids[n + 1], records[2 * n + 1], records[2 * n + 2] = id, id, ARGV[t + 3]
      n = n + 1
    else
      replace(ids, records) -- in their order: one may be of the same id
      ids, records, n = {}, {}, 0
      letter = offer(id, policy, ARGV[t + 3])
    end
    letters = letters .. letter
    if letter == 'a' then
      local at = tonumber(score)
      if at < now then
        at = at < 0 and now - at or now
        score = string.format('%d', at)
      end
      scores[m + 1], scores[m + 2] = score, id
      m = m + 2
      if not first or at < first then first = at end
    end
  end
  replace(ids, records)
  if first then call('ZADD', due, unpack(scores)) end
  if first and first <= now + 60000 then hint(first, channel) end
  i = last + 1
end
return letters
