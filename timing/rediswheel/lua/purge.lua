-- Deletes up to 100 dead tasks, the oldest first: those that have been dead for some time, and those
-- above a number.
-- ARGV:   1 time in ms or '', 2 age in ms, 3 how many may stay
-- Answer: how many were deleted; if that is 100 there may be more
local now = clock(math.floor)
allow_when_full()
local n = math.max(redis.call('ZCOUNT', dead, '-inf', now - ARGV[2]), redis.call('ZCARD', dead) - ARGV[3])
local ids = n > 0 and redis.call('ZRANGE', dead, 0, math.min(n, 100) - 1) or {}
if #ids > 0 then
  redis.call('HDEL', state, unpack(ids))
  redis.call('HDEL', body, unpack(ids))
  redis.call('ZREM', dead, unpack(ids))
end
return #ids
