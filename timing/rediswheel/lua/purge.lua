-- Deletes up to 100 tasks that have been dead for some time.
-- KEYS:   1 due, 2 run, 3 state, 4 body, 5 own, 6 dead
-- ARGV:   1 time in ms or '', 2 age in ms
-- Answer: how many were deleted; if that is 100 there may be more
local due, run, state, body, own, dead = unpack(KEYS)
local t = redis.call('TIME')
local now = tonumber(ARGV[1]) or t[1] * 1000 + math.floor(t[2] / 1000)
redis.call('HDEL', own, '') -- at maxmemory only a script that has removed something may write
local ids = redis.call('ZRANGEBYSCORE', dead, '-inf', now - ARGV[2], 'LIMIT', 0, 100)
if #ids > 0 then
  redis.call('HDEL', state, unpack(ids))
  redis.call('HDEL', body, unpack(ids))
  redis.call('ZREM', dead, unpack(ids))
end
return #ids
