-- Adds tasks, of one shard or of several. KEYS: those of each shard. ARGV: time or ''; then of each
-- shard its channel and a number of tasks, and of each of these: id, policy (replace, ignore, fail),
-- due time in ms or its negative delay, record. Returns a letter for each task: a for added, also if it
-- replaces another, i for ignored, c for conflict. The record is written first. That may be refused for
-- want of memory, and then nothing has happened. An id that has no record has nothing else either.
local _, now = clock(ARGV[1])

-- write writes the record of a task, and returns its letter, and what else there was of its id.
local function write(id, policy, record)
  if call(policy == 'replace' and 'HSET' or 'HSETNX', body, id, record) == 1 then return 'a', false end
  local old = call('HGET', state, id)
  if policy ~= 'replace' then -- one that is dead, or cancelled in its last run, does not count
    if not old or not (string.find(old, '^%d+ 1') or call('ZSCORE', dead, id)) then
      return policy == 'ignore' and 'i' or 'c'
    end
    call('HSET', body, id, record)
  end
  return 'a', old
end

local letters, i = '', 2
for k = 0, #KEYS - 6, 6 do
  due, run, state, body, own, dead = KEYS[k + 1], KEYS[k + 2], KEYS[k + 3], KEYS[k + 4], KEYS[k + 5], KEYS[k + 6]
  local channel, first, scores = ARGV[i], nil, {}
  local last = i + 1 + 4 * ARGV[i + 1]
  for t = i + 2, last, 4 do
    local id, score = ARGV[t], ARGV[t + 2]
    local letter, old = write(id, ARGV[t + 1], ARGV[t + 3])
    letters = letters .. letter
    if letter == 'a' then
      local at = tonumber(score)
      if at < now then
        at = at < 0 and now - at or now
        score = string.format('%d', at)
      end
      scores[#scores + 1] = score
      scores[#scores + 1] = id
      if old then -- what runs is not told here; its token is worth nothing from now on
        call('HDEL', state, id)
        call('ZREM', run, id)
        call('ZREM', dead, id)
      end
      if not first or at < first then first = at end
    end
  end
  if first then call('ZADD', due, unpack(scores)) end
  if first and first <= now + 60000 then hint(first, channel) end
  i = last + 1
end
return letters
