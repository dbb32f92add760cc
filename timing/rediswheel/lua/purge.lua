-- Deletes dead tasks. ARGV: time or '', ms of age. Returns how many; if that is 100 there may be
-- more.
begin()
local now = clock(ARGV[1])
local ids = call('ZRANGEBYSCORE', dead, '-inf', string.format('%d', now - ARGV[2]), 'LIMIT', 0, 100)
if #ids > 0 then
  call('HDEL', state, unpack(ids))
  call('HDEL', body, unpack(ids))
  call('ZREM', dead, unpack(ids))
end
return #ids
