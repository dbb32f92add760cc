-- Gives a dead task its attempts back, due now. ARGV: time or '', channel, id. Returns 1, or 0 if it is
-- not dead.
begin()
local _, now = clock(ARGV[1])
local id = ARGV[3]
if not call('ZSCORE', dead, id) then return 0 end
call('ZADD', due, now, id)
call('HDEL', state, id)
call('ZREM', dead, id)
hint(now, ARGV[2])
return 1
