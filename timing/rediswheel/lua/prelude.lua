-- What all scripts begin with. Their keys are those of one shard.
-- KEYS:   1 due, 2 run, 3 state, 4 body, 5 own, 6 dead
local due, run, state, body, own, dead = unpack(KEYS)

-- allow_when_full lets the script write at maxmemory: one that has removed something may.
local function allow_when_full() redis.call('HDEL', own, '') end

-- clock returns Redis' time in ms, or the time in ARGV[1] if that is one: rounded up it is the first
-- ms that has not begun. It also returns the latest time that claims have seen. If that is to come,
-- the clock was set back, and tasks that were due by then are due now.
local function clock(round)
  local t, seen = redis.call('TIME'), tonumber(redis.call('HGET', own, 'seen') or 0)
  local now = tonumber(ARGV[1]) or round(t[1] * 1000 + t[2] / 1000)
  if seen <= now then return now, now end
  allow_when_full()
  local late = redis.call('ZRANGEBYSCORE', due, '(' .. now, seen, 'LIMIT', 0, 1000)
  for _, id in ipairs(late) do redis.call('ZADD', due, now, id) end
  if #late == 1000 then return now, seen end
  redis.call('HSET', own, 'seen', now)
  return now, now
end

-- hint tells workers of the shard. The user may lack the right to publish.
local function hint(text)
  redis.pcall('PUBLISH', string.match(own, '^[^{]*') .. 'hints', own .. ' ' .. text)
end

-- hint_due tells the owner of a task that is due before it looks at the shard.
local function hint_due(at, now)
  local back = tonumber(redis.call('HGET', own, 'back'))
  if back and at < back then
    redis.call('HSET', own, 'back', at)
    hint('* ' .. at + 1 - now)
  end
end

-- was_due returns when a task that comes back was due before it was claimed: its run's token ends
-- with that. Tokens of older versions do not.
local function was_due(token, now)
  return math.min(tonumber(string.match(token, '%.(%d+)$') or now), now)
end
