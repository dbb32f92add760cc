-- Ends tasks that were done. ARGV: time or '', channel, shard, then of each: id, token, due time in ms of
-- the next occurrence or ''. Returns a list: done, or stale if the token is not that of the task any more.
begin()
local ids, results, gone = {}, {}, {}
for i = 4, #ARGV, 3 do ids[#ids + 1] = ARGV[i] end
local states = redis.call('HMGET', state, unpack(ids))
local first
for i, id in ipairs(ids) do
  local token, _, _, cancelled = parse(states[i])
  local next = ARGV[3 + i * 3]
  if token == 0 or token ~= tonumber(ARGV[2 + i * 3]) then
    results[i] = 'stale'
  else
    results[i] = 'done'
    if next ~= '' and cancelled == 0 then
      redis.call('ZADD', due, next, id)
      redis.call('HDEL', state, id)
      redis.call('ZREM', run, id)
      if not first or tonumber(next) < first then first = tonumber(next) end
    else
      gone[#gone + 1] = id
    end
  end
end
if #gone > 0 then
  redis.call('HDEL', state, unpack(gone))
  redis.call('HDEL', body, unpack(gone))
  redis.call('ZREM', run, unpack(gone))
end
if first then hint(first, ARGV[2], ARGV[3]) end
return results
