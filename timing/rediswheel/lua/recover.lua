-- recover deals with a task whose lease has run out: its worker is gone, or cannot reach Redis. That
-- is no failed attempt of the task, but one that comes back too often is likely to be the reason.
-- Returns 1 if it is dead for that.
local function recover(id, now, deliverable)
  local _, cancelled, attempts, deliveries, occurrence, reason = parse(call('HGET', state, id))
  if cancelled == 1 then
    forget(id)
  elseif deliveries >= deliverable then
    call('HSET', state, id, format(0, 0, attempts, deliveries, occurrence,
      'given to ' .. deliveries .. ' workers, and none of them finished it'))
    call('ZADD', dead, now, id)
    call('ZREM', run, id)
    return 1
  else
    call('HSET', state, id, format(0, 0, attempts, deliveries, occurrence, reason))
    call('ZADD', due, now, id)
  end
  call('ZREM', run, id)
  return 0
end

