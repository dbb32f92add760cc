-- Counts.
-- KEYS:   1 due, 2 run, 3 state, 4 body, 5 own, 6 dead
-- ARGV:   1 time in ms or '', 2 ms of a slice of time, 3 number of slices
-- Answer: 1 waiting, 2 of these due, 3 running, 4 waiting to be tried again, 5 dead, 6 first due in
--         ms or '', 7 now in ms, 8 owner or '', 9 1 if paused, else 0; then for each slice from now
--         on how many are due in it
local due, run, state, body, own, dead = unpack(KEYS)
local t = redis.call('TIME')
local now = tonumber(ARGV[1]) or t[1] * 1000 + math.floor(t[2] / 1000)
local step = tonumber(ARGV[2])
local running, lost = redis.call('ZCARD', run), redis.call('ZCARD', dead)
local held = redis.call('HMGET', own, 'worker', 'until', 'paused')
local reply = {redis.call('ZCARD', due), redis.call('ZCOUNT', due, '-inf', now), running,
  redis.call('HLEN', state) - running - lost, lost, tonumber(redis.call('ZRANGE', due, 0, 0, 'WITHSCORES')[2]) or '',
  now, (tonumber(held[2]) or 0) > now and held[1] or '', held[3] and 1 or 0}
for i = 1, tonumber(ARGV[3]) do
  local from = now + (i - 1) * step
  reply[#reply + 1] = redis.call('ZCOUNT', due, '(' .. from, from + step)
end
return reply
