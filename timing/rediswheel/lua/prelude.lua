-- What all scripts begin with. Their keys are those of one shard.
-- KEYS:   1 due, 2 run, 3 state, 4 body, 5 own, 6 dead
local due, run, state, body, own, dead = unpack(KEYS)

-- clock is Redis' time in ms, or the time in ARGV[1] if that is one. A time that is rounded up is the
-- first ms that has not begun.
local function clock(round)
  local t = redis.call('TIME')
  return tonumber(ARGV[1]) or round(t[1] * 1000 + t[2] / 1000)
end

-- allow_when_full lets the script write at maxmemory: one that has removed something may.
local function allow_when_full() redis.call('HDEL', own, '') end

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
