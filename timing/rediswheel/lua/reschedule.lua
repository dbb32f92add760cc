-- Moves a task. ARGV: time or '', channel, shard, id, due time in ms or '', delay in ms. Returns moved,
-- running or missing. What was put off by a failure, and is moved, keeps its attempts.
begin()
local _, now = clock(ARGV[1])
local id = ARGV[4]
if not redis.call('ZSCORE', due, id) then
  return redis.call('ZSCORE', run, id) and 'running' or 'missing'
end
local at = ARGV[5] ~= '' and math.max(tonumber(ARGV[5]), now) or now + tonumber(ARGV[6])
redis.call('ZADD', due, at, id)
hint(at, ARGV[2], ARGV[3])
return 'moved'
