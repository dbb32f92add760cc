-- Moves a task that waits, which keeps its attempts, or one that is dead, which gets all back.
-- ARGV:   1 time in ms or '', 2 id, 3 due time in ms or negative delay in ms, 4 '1' if it is dead
-- Answer: moved, running or missing
local now, id, at = clock(math.ceil), ARGV[2], tonumber(ARGV[3])
allow_when_full()
if not redis.call('ZSCORE', ARGV[4] == '1' and dead or due, id) then
  return redis.call('ZSCORE', run, id) and 'running' or 'missing'
end
if at < 0 then at = now - at elseif at < now then at = now end
redis.call('ZADD', due, at, id)
if redis.call('ZREM', dead, id) == 1 then redis.call('HDEL', state, id) end
hint_due(at, now)
return 'moved'
