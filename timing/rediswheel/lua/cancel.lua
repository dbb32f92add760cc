-- Cancels a task. ARGV: id. Returns cancelled, running or missing. One that runs is marked: it will be
-- neither tried again nor repeated.
begin()
local id = ARGV[1]
local old = redis.call('HGET', state, id)
local token, _, attempts, deliveries, occurrence, reason = parse(old)
if token > 0 then
  redis.call('HSET', state, id, format(token, 1, attempts, deliveries, occurrence, reason))
  return 'running'
end
if redis.call('HDEL', body, id) == 0 then return 'missing' end
redis.call('ZREM', due, id)
if old then
  redis.call('ZREM', dead, id)
  redis.call('HDEL', state, id)
end
return 'cancelled'
