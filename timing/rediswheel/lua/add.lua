-- Adds a task.
-- ARGV:   1 time in ms, or '' for Redis' own, 2 policy (replace, ignore, fail), 3 id,
--         4 record, 5 due time in ms or negative delay in ms
-- Answer: added, also in place of another; ignored; or conflict
-- The record is written first. At maxmemory Redis refuses that, and then nothing has happened.
local now, policy, id, record, at = clock(math.ceil), ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5])
if redis.call('HSETNX', body, id, record) == 0 then
  if redis.call('HGET', body, id) == record then return 'added' end -- the client sends this again, as the answer was lost
  -- A task that is dead, or was cancelled while it runs, is over: another takes its place. So is one
  -- whose other keys were deleted.
  local held = redis.call('HGET', state, id)
  if policy ~= 'replace' and not (held and string.find(held, '^%S+ 1 ')) and
    (redis.call('ZSCORE', due, id) or redis.call('ZSCORE', run, id)) then
    return policy == 'ignore' and 'ignored' or 'conflict'
  end
  redis.call('HSET', body, id, record)
  redis.call('ZREM', run, id)
  redis.call('ZREM', dead, id)
  redis.call('HDEL', state, id) -- with it the token of a run, which is worth nothing from now on
end
if at < 0 then at = now - at elseif at < now then at = now end
redis.call('ZADD', due, at, id)
if at < now + 60000 then hint_due(at, now) end -- the owner looks each minute at least
return 'added'
