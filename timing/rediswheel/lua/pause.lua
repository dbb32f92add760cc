-- Pauses a shard or resumes it, and tells its owner.
-- ARGV:   1 '1' to pause, '0' to resume
-- Answer: 1
allow_when_full()
if ARGV[1] == '1' then
  redis.call('HSET', own, 'paused', 1)
else
  redis.call('HDEL', own, 'paused')
  hint('* 0')
end
return 1
