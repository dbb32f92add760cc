-- Deletes dead tasks. ARGV: time or '', ms of age. Returns how many; if that is 100 there may be more.
begin()
local now = clock(ARGV[1])
local ids = call('ZRANGEBYSCORE', dead, '-inf', now - tonumber(ARGV[2]), 'LIMIT', 0, 100)
for _, id in ipairs(ids) do
  forget(id)
  call('ZREM', dead, id)
end
return #ids
