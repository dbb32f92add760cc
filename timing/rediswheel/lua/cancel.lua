-- Cancels a task. One that runs is marked: it will be neither tried again nor repeated.
-- ARGV:   1 id
-- Answer: cancelled, running or missing
local id = ARGV[1]
allow_when_full()
if redis.call('ZSCORE', run, id) then
  local token, rest = string.match(redis.call('HGET', state, id) or '- 0 0 0 0 ', '^(%S+) %d(.*)$')
  redis.call('HSET', state, id, token .. ' 1' .. rest)
  hint('! ' .. token .. ' ' .. id)
  return 'running'
end
if redis.call('ZREM', due, id) + redis.call('ZREM', dead, id) == 0 then return 'missing' end
redis.call('HDEL', body, id)
redis.call('HDEL', state, id)
return 'cancelled'
