-- Gives a dead task its attempts back, due now. ARGV: time or '', channel, shard, id. Returns 1, or 0 if it is
-- not dead.
begin()
local _, now = clock(ARGV[1])
local id = ARGV[4]
if not redis.call('ZSCORE', dead, id) then return 0 end
redis.call('ZADD', due, now, id)
redis.call('HDEL', state, id)
redis.call('ZREM', dead, id)
hint(now, ARGV[2], ARGV[3])
return 1
