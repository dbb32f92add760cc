-- Gives a shard up, if it is still the worker's, and tells the others.
-- ARGV:   1 worker
-- Answer: 1
allow_when_full()
if redis.call('HGET', own, 'worker') == ARGV[1] then
  redis.call('HSET', own, 'worker', '', 'until', 0)
  redis.call('HDEL', own, 'back')
  hint('- 0')
end
return 1
