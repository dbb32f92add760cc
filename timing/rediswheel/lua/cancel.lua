-- Cancels a task. One that runs is marked: it will be neither tried again nor repeated.
-- KEYS:   1 due, 2 run, 3 state, 4 body, 5 own, 6 dead
-- ARGV:   1 id
-- Answer: cancelled, running or missing
local due, run, state, body, own, dead = unpack(KEYS)
local id = ARGV[1]
redis.call('HDEL', own, '') -- at maxmemory only a script that has removed something may write
if redis.call('ZSCORE', run, id) then
  local marked = string.gsub(redis.call('HGET', state, id), '^(%S+) %d', '%1 1')
  redis.call('HSET', state, id, marked)
  return 'running'
end
if redis.call('ZREM', due, id) + redis.call('ZREM', dead, id) == 0 then return 'missing' end
redis.call('HDEL', body, id)
redis.call('HDEL', state, id)
return 'cancelled'
