-- Adds a task.
-- KEYS:   1 due, 2 run, 3 state, 4 body, 5 own, 6 dead
-- ARGV:   1 time in ms, or '' for Redis' own, 2 policy (a replace, i ignore, c conflict), 3 id,
--         4 record, 5 due time in ms or negative delay in ms
-- Answer: a added, also in place of another; i ignored; c conflict
-- The record is written first. At maxmemory Redis refuses that, and then nothing has happened.
local due, run, state, body, own, dead = unpack(KEYS)
local t = redis.call('TIME')
local now = tonumber(ARGV[1]) or math.ceil(t[1] * 1000 + t[2] / 1000) -- the first ms that has not begun
local policy, id, record, at = ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5])
if redis.call(policy == 'a' and 'HSET' or 'HSETNX', body, id, record) == 0 then
  if policy ~= 'a' then
    -- A task that is dead, or was cancelled while it runs, is over: another takes its place.
    local held = redis.call('HGET', state, id)
    if not redis.call('ZSCORE', dead, id) and not (held and string.find(held, '^%S+ 1 ')) then return policy end
    redis.call('HSET', body, id, record)
  end
  redis.call('ZREM', run, id)
  redis.call('ZREM', dead, id)
  redis.call('HDEL', state, id) -- with it the token of a run, which is worth nothing from now on
end
if at < 0 then at = now - at elseif at < now then at = now end
redis.call('ZADD', due, at, id)
if at < now + 60000 then -- the owner looks each minute at least
  local back = tonumber(redis.call('HGET', own, 'back'))
  if back and at < back then
    redis.call('HSET', own, 'back', at)
    redis.call('PUBLISH', string.match(own, '^[^{]*') .. 'hints', own .. ' * ' .. at + 1 - now)
  end
end
return 'a'
