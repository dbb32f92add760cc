-- Cancels a task. ARGV: id. Returns cancelled, running or missing. One that runs is marked: it will be
-- neither tried again nor repeated.
begin()
local id = ARGV[1]
if call('ZREM', due, id) == 0 then
  if call('HEXISTS', body, id) == 0 then return 'missing' end
  local b = call('ZREM', dead, id) == 0 and find(id)
  if b then
    local _, attempts, deliveries, occurrence, reason = parse(holds(b, id))
    b.state[id] = format(1, attempts, deliveries, occurrence, reason)
    shut(b)
    return 'running'
  end
end
call('HDEL', body, id)
call('HDEL', state, id)
return 'cancelled'
