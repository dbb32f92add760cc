-- Ends tasks that were done. ARGV: time or '', channel, shard, then of each: id, token, due time in ms of
-- the next occurrence or ''. Returns a list: done, or stale if the token is not that of the task any more.
local ids, results, gone = {}, {}, {}
for i = 4, #ARGV, 3 do ids[#ids + 1] = ARGV[i] end
local states = redis.call('HMGET', state, unpack(ids))
local first
for i, id in ipairs(ids) do
  local given, next = ARGV[2 + i * 3] .. ' ', ARGV[3 + i * 3]
  local found = states[i] and string.sub(states[i], 1, #given + 1) -- the token and whether it was cancelled
  if found ~= given .. '0' and found ~= given .. '1' or given == '0 ' then
    results[i] = 'stale'
  elseif next ~= '' and found == given .. '0' then
    results[i] = 'done'
    begin()
    redis.call('ZADD', due, next, id)
    redis.call('HDEL', state, id)
    redis.call('ZREM', run, id)
    if not first or tonumber(next) < first then first = tonumber(next) end
  else
    results[i] = 'done'
    gone[#gone + 1] = id
  end
end
if #gone > 0 then
  redis.call('HDEL', state, unpack(gone))
  redis.call('HDEL', body, unpack(gone))
  redis.call('ZREM', run, unpack(gone))
end
if first then hint(first, ARGV[2], ARGV[3]) end
return results
