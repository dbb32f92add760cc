-- Adds tasks, of one shard or of several. KEYS: those of each shard. ARGV: time or ''; then of each
-- shard its channel, the number n of its tasks, n letters that say what to do if a task is there already
-- (a: replace it, i: ignore this one, c: that is a conflict), n times id and record, and n times due time in
-- ms, or its negative delay, and id. Returns a letter for each task: a for added, also if it replaces
-- another, i for ignored, c for conflict. The records are written first. That may be refused for want of
-- memory, and then nothing has happened. An id that has no record has nothing else either.
local _, now = clock(ARGV[1])

-- offer writes the record of a task that does not replace another, and returns its letter.
local function offer(id, record, letter)
  if call('HSETNX', body, id, record) == 1 then return 'a' end
  local old = call('HGET', state, id)
  if not old or not (string.find(old, '^%d+ 1') or call('ZSCORE', dead, id)) then return letter end
  call('HSET', body, id, record) -- one that is dead, or cancelled in its last run, does not count
  call('HDEL', state, id)
  call('ZREM', run, id)
  call('ZREM', dead, id)
  return 'a'
end

-- replace writes n records, from ARGV[from] on, of tasks that replace others. What runs is not told here;
-- its token is worth nothing from now on.
local function replace(from, n)
  if call('HSET', body, unpack(ARGV, from, from + 2 * n - 1)) == n then return end
  local ids = {}
  for t = 1, n do ids[t] = ARGV[from + 2 * t - 2] end
  for t, old in ipairs(call('HMGET', state, unpack(ids))) do
    if old then
      call('HDEL', state, ids[t])
      call('ZREM', run, ids[t])
      call('ZREM', dead, ids[t])
    end
  end
end

local answer, i = '', 2
for k = 0, #KEYS - 6, 6 do
  due, run, state, body, own, dead = KEYS[k + 1], KEYS[k + 2], KEYS[k + 3], KEYS[k + 4], KEYS[k + 5], KEYS[k + 6]
  local channel, n, letters = ARGV[i], tonumber(ARGV[i + 1]), ARGV[i + 2]
  local records, scores, m, first = i + 3, i + 3 + 2 * n, 0, nil
  local some = string.find(letters, '[^a]') -- replace not all
  if not some then replace(records, n) end
  for t = 0, n - 1 do
    local letter, at = 'a', tonumber(ARGV[scores + 2 * t])
    if some then
      local r = records + 2 * t
      letter = string.sub(letters, t + 1, t + 1)
      if letter == 'a' then replace(r, 1) else letter = offer(ARGV[r], ARGV[r + 1], letter) end
      answer = answer .. letter
    end
    if letter == 'a' then
      local score, id = ARGV[scores + 2 * t], ARGV[scores + 2 * t + 1]
      if at < now then
        at = at < 0 and now - at or now
        score = string.format('%d', at)
      end
      ARGV[scores + m], ARGV[scores + m + 1] = score, id -- those to add move together
      m = m + 2
      if not first or at < first then first = at end
    end
  end
  if not some then answer = answer .. letters end
  if first then call('ZADD', due, unpack(ARGV, scores, scores + m - 1)) end
  if first and first <= now + 60000 then hint(first, channel) end
  i = scores + 2 * n
end
return answer
