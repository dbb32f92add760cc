-- Moves a task that waits, which keeps its attempts, or one that is dead, which gets all back.
-- KEYS:   1 due, 2 run, 3 state, 4 body, 5 own, 6 dead
-- ARGV:   1 time in ms or '', 2 id, 3 due time in ms or negative delay in ms, 4 '1' if it is dead
-- Answer: moved, running or missing
local due, run, state, body, own, dead = unpack(KEYS)
local t = redis.call('TIME')
local now = tonumber(ARGV[1]) or math.ceil(t[1] * 1000 + t[2] / 1000)
local id, at = ARGV[2], tonumber(ARGV[3])
redis.call('HDEL', own, '') -- at maxmemory only a script that has removed something may write
if not redis.call('ZSCORE', ARGV[4] == '1' and dead or due, id) then
  return redis.call('ZSCORE', run, id) and 'running' or 'missing'
end
if at < 0 then at = now - at elseif at < now then at = now end
redis.call('ZADD', due, at, id)
if redis.call('ZREM', dead, id) == 1 then redis.call('HDEL', state, id) end
local back = tonumber(redis.call('HGET', own, 'back'))
if back and at < back then
  redis.call('HSET', own, 'back', at)
  redis.call('PUBLISH', string.match(own, '^[^{]*') .. 'hints', own .. ' * ' .. at + 1 - now)
end
return 'moved'
