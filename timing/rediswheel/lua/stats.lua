-- Counts. ARGV: time or '', ms of a slice, number of slices. Returns: scheduled, due, running,
-- retrying, dead, first due in ms or '', now in ms, owner or '', and for each slice from now on how
-- many are due in it.
local now = clock(ARGV[1]) + 0
local step = tonumber(ARGV[2])
local waiting, lost = call('ZCARD', due), call('ZCARD', dead)
local first = whole(call('ZRANGE', due, 0, 0, 'WITHSCORES')[2])
local held = call('HMGET', own, 'worker', 'until')
local owner = (tonumber(held[2]) or 0) > now and held[1] or ''
local reply = {waiting, call('ZCOUNT', due, '-inf', now), call('HLEN', body) - waiting - lost,
  call('HLEN', state) - lost, lost, first or '', now, owner}
for i = 1, tonumber(ARGV[3]) do
  local from = now + (i - 1) * step
  reply[#reply + 1] = call('ZCOUNT', due, '(' .. from, from + step)
end
return reply
