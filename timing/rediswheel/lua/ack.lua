-- Ends tasks that were done, and keeps results of some.
-- KEYS:   1 due, 2 run, 3 state, 4 body, 5 own, 6 dead; then the keys of results
-- ARGV:   1 number of tasks; of each: id, token; then of each result: place of its task, ms to keep
--         it, result
-- Answer: a letter for each task: d done, s stale, the token is not that of the task's run
local due, run, state, body, own, dead = unpack(KEYS)
local n, ids, gone, letters = tonumber(ARGV[1]), {}, {}, {}
redis.call('HDEL', own, '') -- at maxmemory only a script that has removed something may write
for i = 1, n do ids[i] = ARGV[2 * i] end
local states = redis.call('HMGET', state, unpack(ids))
for i = 1, n do
  local held = states[i] and string.find(states[i], ARGV[2 * i + 1] .. ' ', 1, true) == 1
  letters[i] = held and 'd' or 's'
  if held then gone[#gone + 1] = ids[i] end
end
for i = 7, #KEYS do
  local at = 2 * n + 2 + 3 * (i - 7)
  if letters[tonumber(ARGV[at])] == 'd' then redis.call('SET', KEYS[i], ARGV[at + 2], 'PX', ARGV[at + 1]) end
end
if #gone > 0 then
  redis.call('HDEL', body, unpack(gone))
  redis.call('HDEL', state, unpack(gone))
  redis.call('ZREM', run, unpack(gone))
end
return table.concat(letters)
