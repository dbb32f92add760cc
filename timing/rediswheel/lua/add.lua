-- Adds tasks. ARGV: time or '', channel, shard; then of each task: id, policy (replace, ignore, fail),
-- due time in ms or '', delay in ms, record. Returns a list: added, replaced, ignored or conflict.
-- The record is written first. That may be refused for want of memory, and then nothing has happened.
local _, now = clock(ARGV[1])
local first
local results = {}

-- over reports whether the task with the id is dead, or cancelled in its last run: then it does not count.
local function over(id, old)
  local _, cancelled = parse(old)
  return cancelled == 1 or redis.call('ZSCORE', dead, id)
end

-- put writes the record, unless the policy is against it. An id that has no record has nothing else either.
local function put(id, policy, record)
  local fresh = redis.call(policy == 'replace' and 'HSET' or 'HSETNX', body, id, record)
  if fresh == 1 then return 'added' end
  local old = redis.call('HGET', state, id)
  if policy ~= 'replace' then
    if not old or not over(id, old) then return policy == 'ignore' and 'ignored' or 'conflict' end
    redis.call('HSET', body, id, record)
  end
  return 'replaced', old
end

for i = 4, #ARGV, 5 do
  local id, at = ARGV[i], ARGV[i + 2]
  local result, old = put(id, ARGV[i + 1], ARGV[i + 4])
  if result == 'added' or result == 'replaced' then
    at = at ~= '' and math.max(tonumber(at), now) or now + tonumber(ARGV[i + 3])
    redis.call('ZADD', due, at, id)
    if old then -- what runs is not told here; its token is worth nothing from now on
      redis.call('HDEL', state, id)
      redis.call('ZREM', run, id)
      redis.call('ZREM', dead, id)
    end
    if not first or at < first then first = at end
  end
  results[#results + 1] = result
end
if first then hint(first, ARGV[2], ARGV[3]) end
return results
