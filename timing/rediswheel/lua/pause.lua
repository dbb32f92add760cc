-- Pauses a shard or resumes it, and tells its owner.
-- KEYS:   1 due, 2 run, 3 state, 4 body, 5 own, 6 dead
-- ARGV:   1 '1' to pause, '0' to resume
-- Answer: 1
local due, run, state, body, own, dead = unpack(KEYS)
redis.call('HDEL', own, '') -- at maxmemory only a script that has removed something may write
if ARGV[1] == '1' then
  redis.call('HSET', own, 'paused', 1)
else
  redis.call('HDEL', own, 'paused')
  redis.call('PUBLISH', string.match(own, '^[^{]*') .. 'hints', own .. ' * 0')
end
return 1
