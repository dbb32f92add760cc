-- Extends leases.
-- KEYS:   1 due, 2 run, 3 state, 4 body, 5 own, 6 dead
-- ARGV:   1 time in ms or '', 2 lease in ms; then of each task: id, token
-- Answer: a letter for each: h held, s stale
local due, run, state, body, own, dead = unpack(KEYS)
local t = redis.call('TIME')
local now = tonumber(ARGV[1]) or t[1] * 1000 + math.floor(t[2] / 1000)
local letters = {}
redis.call('HDEL', own, '') -- at maxmemory only a script that has removed something may write
for i = 3, #ARGV, 2 do
  local st = redis.call('HGET', state, ARGV[i])
  local held = st and string.find(st, ARGV[i + 1] .. ' ', 1, true) == 1
  if held then redis.call('ZADD', run, now + ARGV[2], ARGV[i]) end
  letters[#letters + 1] = held and 'h' or 's'
end
return table.concat(letters)
