-- Cancels a task. ARGV: id. Returns cancelled, running or missing. One that runs is marked: it will be
-- neither tried again nor repeated.
begin()
local id = ARGV[1]
local old = call('HGET', state, id)
local token, _, attempts, deliveries, occurrence, reason = parse(old)
if token > 0 then
  call('HSET', state, id, format(token, 1, attempts, deliveries, occurrence, reason))
  return 'running'
end
if call('HDEL', body, id) == 0 then return 'missing' end
call('ZREM', due, id)
if old then
  call('ZREM', dead, id)
  call('HDEL', state, id)
end
return 'cancelled'
