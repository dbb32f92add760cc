-- Gives back the tasks of a claim whose answer was lost, as if it had not been made. If that claim
-- comes only now, claim.lua refuses it.
-- ARGV:   1 time in ms or '', 2 token of the claim, 3 '1' to leave the tasks where they are until
--         their leases end
-- Answer: how many tasks
local now, token, later, n, first = clock(math.floor), ARGV[2], ARGV[3] == '1', 0, math.huge
allow_when_full()
redis.call('HSET', own, 'gone', token)
local all = redis.call('ZRANGE', run, 0, -1)
for from = 1, #all, 100 do
  local ids = {unpack(all, from, math.min(from + 99, #all))}
  for i, st in ipairs(redis.call('HMGET', state, unpack(ids))) do
    if st and string.find(st, token .. '.', 1, true) == 1 then
      n = n + 1
      local had, cancelled, attempts, deliveries, rest = string.match(st, '^(%S+) (%d) (%d+) (%d+) (.*)$')
      local at = was_due(had, now)
      rest = attempts .. ' ' .. deliveries - 1 .. ' ' .. rest
      if cancelled == '1' then
        redis.call('ZREM', run, ids[i])
        redis.call('HDEL', body, ids[i])
        redis.call('HDEL', state, ids[i])
      elseif later then -- with a token that nobody has, so that this happens once
        redis.call('HSET', state, ids[i], 'lost.' .. at .. ' 0 ' .. rest)
      else
        redis.call('ZREM', run, ids[i])
        redis.call('HSET', state, ids[i], '- 0 ' .. rest)
        redis.call('ZADD', due, at, ids[i])
        first = math.min(first, at)
      end
    end
  end
end
if first < math.huge then hint_due(first, now) end
return n
