-- Gives a dead task its attempts back, due now. ARGV: time or '', id. Returns 1, or 0 if it is
-- not dead.
begin()
local now = after(clock(ARGV[1]))
local id = ARGV[2]
if not call('ZSCORE', dead, id) then return 0 end
call('ZADD', due, now, id)
call('HDEL', state, id)
call('ZREM', dead, id)
hint(string.format('%d', now))
return 1
