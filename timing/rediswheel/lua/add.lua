-- Adds tasks. ARGV: time or '', channel, shard; then of each task: id, policy (replace, ignore, fail),
-- due time in ms or '', delay in ms, record. Returns a list: added, replaced, ignored or conflict.
-- The record is written first. That may be refused for want of memory, and then nothing has happened.
local _, now = clock(ARGV[1])
local first
local results = {}

-- taken reports whether a task with the id is there that is not over: dead, or cancelled in its last run.
local function taken(id, old)
  if not old then return redis.call('HEXISTS', body, id) == 1 end
  local _, _, _, cancelled = parse(old)
  return cancelled == 0 and not redis.call('ZSCORE', dead, id)
end

for i = 4, #ARGV, 5 do
  local id, policy, at, record = ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 4]
  local old = redis.call('HGET', state, id)
  if policy ~= 'replace' and taken(id, old) then
    results[#results + 1] = policy == 'ignore' and 'ignored' or 'conflict'
  else
    at = at ~= '' and math.max(tonumber(at), now) or now + tonumber(ARGV[i + 3])
    local fresh = redis.call('HSET', body, id, record)
    redis.call('ZADD', due, int(at), id)
    if old then -- what runs is not told here; its token is worth nothing from now on
      redis.call('HDEL', state, id)
      redis.call('ZREM', run, id)
      redis.call('ZREM', dead, id)
    end
    results[#results + 1] = fresh == 1 and 'added' or 'replaced'
    if not first or at < first then first = at end
  end
end
if first then hint(first, ARGV[2], ARGV[3]) end
return results
