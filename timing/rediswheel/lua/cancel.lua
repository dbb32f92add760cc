-- Cancels a task. ARGV: id. Returns cancelled, running or missing. One that runs is marked: it will
-- be neither tried again nor repeated.
begin()
local id = ARGV[1]
if call('ZREM', due, id) == 0 then
  if call('HEXISTS', body, id) == 0 then return 'missing' end
  local b = batches()
  local o = call('ZREM', dead, id) == 0 and b.find(id)
  if o then
    local _, attempts, deliveries, occurrence, reason = parse(b.holds(o, id))
    o.state[id] = format(1, attempts, deliveries, occurrence, reason)
    b.shut(o)
    return 'running'
  end
end
call('HDEL', body, id)
call('HDEL', state, id)
return 'cancelled'
