-- Counts. ARGV: time or '', ms of a slice, number of slices. Returns: scheduled, due, running, retrying,
-- dead, first due in ms or '', now in ms, owner or '', and for each slice from now on how many are due in it.
local now = clock(ARGV[1])
local step = tonumber(ARGV[2])
local waiting, running, lost = redis.call('ZCARD', due), redis.call('ZCARD', run), redis.call('ZCARD', dead)
local first = redis.call('ZRANGE', due, 0, 0, 'WITHSCORES')[2]
local held = redis.call('HMGET', own, 'worker', 'until')
local owner = (tonumber(held[2]) or 0) > now and held[1] or ''
local reply = {waiting, redis.call('ZCOUNT', due, '-inf', now), running,
  redis.call('HLEN', state) - running - lost, lost, first and first or '', now, owner}
for i = 1, tonumber(ARGV[3]) do
  local from = now + (i - 1) * step
  reply[#reply + 1] = redis.call('ZCOUNT', due, '(' .. from, from + step)
end
return reply
