-- Says that a worker lives, or that it leaves. KEYS: workers. ARGV: time or '', worker, ms that
-- this holds or ''. Returns the workers.
local now = clock(ARGV[1])
if ARGV[3] == '' then
  redis.call('ZREM', KEYS[1], ARGV[2])
else
  redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
  redis.call('ZADD', KEYS[1], string.format('%d', now + ARGV[3]), ARGV[2])
end
return redis.call('ZRANGE', KEYS[1], 0, -1)
