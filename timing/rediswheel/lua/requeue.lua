-- Gives a dead task all its attempts back, due now.
-- KEYS:   1 due, 2 run, 3 state, 4 body, 5 own, 6 dead
-- ARGV:   1 time in ms or '', 2 id
-- Answer: 1, or 0 if it is not dead
local due, run, state, body, own, dead = unpack(KEYS)
local t = redis.call('TIME')
local now = tonumber(ARGV[1]) or math.ceil(t[1] * 1000 + t[2] / 1000)
redis.call('HDEL', own, '') -- at maxmemory only a script that has removed something may write
if not redis.call('ZSCORE', dead, ARGV[2]) then return 0 end
redis.call('ZADD', due, now, ARGV[2])
redis.call('HDEL', state, ARGV[2])
redis.call('ZREM', dead, ARGV[2])
local back = tonumber(redis.call('HGET', own, 'back'))
if back and now < back then
  redis.call('HSET', own, 'back', now)
  redis.call('PUBLISH', string.match(own, '^[^{]*') .. 'hints', 'due ' .. own .. ' ' .. now)
end
return 1
