-- Gives a shard up, if it is still the worker's, and tells the others.
-- KEYS:   1 due, 2 run, 3 state, 4 body, 5 own, 6 dead
-- ARGV:   1 worker
-- Answer: 1
local own = KEYS[5]
redis.call('HDEL', own, '') -- at maxmemory only a script that has removed something may write
if redis.call('HGET', own, 'worker') == ARGV[1] then
  redis.call('HSET', own, 'worker', '', 'until', 0)
  redis.call('HDEL', own, 'back')
  redis.call('PUBLISH', string.match(own, '^[^{]*') .. 'hints', own .. ' - 0')
end
return 1
