-- Adds tasks. ARGV: time or '', channel; then of each task: id, policy (replace, ignore, fail), due time
-- in ms or its negative delay, record. Returns a letter for each: a for added, r for replaced, i for
-- ignored, c for conflict. The record is written first. That may be refused for want of memory, and then
-- nothing has happened. An id that has no record has nothing else either.
local _, now = clock(ARGV[1])
local first
local results = ''
for i = 3, #ARGV, 4 do
  local id, policy, score = ARGV[i], ARGV[i + 1], ARGV[i + 2]
  local result, old = 'a', nil
  if call(policy == 'replace' and 'HSET' or 'HSETNX', body, id, ARGV[i + 3]) == 0 then
    result = 'r'
    old = call('HGET', state, id)
    if policy ~= 'replace' then -- one that is dead, or cancelled in its last run, does not count
      if old and (string.find(old, '^%d+ 1') or call('ZSCORE', dead, id)) then
        call('HSET', body, id, ARGV[i + 3])
      else
        result = policy == 'ignore' and 'i' or 'c'
      end
    end
  end
  if result == 'a' or result == 'r' then
    local at = tonumber(score)
    if at < now then
      at = at < 0 and now - at or now
      score = string.format('%d', at)
    end
    call('ZADD', due, score, id)
    if old then -- what runs is not told here; its token is worth nothing from now on
      call('HDEL', state, id)
      call('ZREM', run, id)
      call('ZREM', dead, id)
    end
    if not first or at < first then first = at end
  end
  results = results .. result
end
if first and first <= now + 60000 then hint(first, ARGV[2]) end
return results
