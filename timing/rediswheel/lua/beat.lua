-- Says that a worker lives, or that it leaves. KEYS: workers. ARGV: time or '', worker, ms that this holds or '',
-- channel, message or ''. Returns the workers. (The first function of common.lua that takes KEYS is not used.)
local now = clock(ARGV[1])
if ARGV[3] == '' then
  redis.call('ZREM', KEYS[1], ARGV[2])
else
  redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
  redis.call('ZADD', KEYS[1], now + tonumber(ARGV[3]), ARGV[2])
end
if ARGV[5] ~= '' then redis.call('PUBLISH', ARGV[4], ARGV[5]) end
return redis.call('ZRANGE', KEYS[1], 0, -1)
