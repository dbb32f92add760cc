-- Counts.
-- ARGV:   1 time in ms or '', 2 ms of a slice of time, 3 number of slices, 4 ms of ownership
-- Answer: 1 waiting, 2 of these due, 3 running, 4 waiting to be tried again, 5 dead, 6 first due in
--         ms or '', 7 now in ms, 8 owner or '', 9 1 if paused, else 0; then for each slice from now
--         on how many are due in it
local now, step = clock(math.floor), tonumber(ARGV[2])
local running, lost = redis.call('ZCARD', run), redis.call('ZCARD', dead)
local held = redis.call('HMGET', own, 'worker', 'until', 'paused')
local left = (tonumber(held[2]) or 0) - now -- more than an ownership: the clock was set back
local reply = {redis.call('ZCARD', due), redis.call('ZCOUNT', due, '-inf', now), running,
  redis.call('HLEN', state) - running - lost, lost, tonumber(redis.call('ZRANGE', due, 0, 0, 'WITHSCORES')[2]) or '',
  now, left > 0 and left <= tonumber(ARGV[4]) and held[1] or '', held[3] and 1 or 0}
for i = 1, tonumber(ARGV[3]) do
  local from = now + (i - 1) * step
  reply[#reply + 1] = redis.call('ZCOUNT', due, '(' .. from, from + step)
end
return reply
