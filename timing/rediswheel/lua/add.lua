-- Adds tasks. ARGV: time or '', channel; then of each task: id, policy (replace, ignore, fail), due time
-- in ms or its negative delay, record. Returns a list: added, replaced, ignored or conflict.
-- The record is written first. That may be refused for want of memory, and then nothing has happened.
-- An id that has no record has nothing else either.
local _, now = clock(ARGV[1])
local first
local results = {}
for i = 3, #ARGV, 4 do
  local id, policy, score = ARGV[i], ARGV[i + 1], ARGV[i + 2]
  local result, old = 'added', nil
  if call(policy == 'replace' and 'HSET' or 'HSETNX', body, id, ARGV[i + 3]) == 0 then
    result = 'replaced'
    old = call('HGET', state, id)
    if policy ~= 'replace' then -- one that is dead, or cancelled in its last run, does not count
      if old and (string.find(old, '^%d+ 1') or call('ZSCORE', dead, id)) then
        call('HSET', body, id, ARGV[i + 3])
      else
        result = policy == 'ignore' and 'ignored' or 'conflict'
      end
    end
  end
  if result == 'added' or result == 'replaced' then
    local at = tonumber(score)
    if at < now then
      at = at < 0 and now - at or now
      score = at
    end
    call('ZADD', due, score, id)
    if old then -- what runs is not told here; its token is worth nothing from now on
      call('HDEL', state, id)
      call('ZREM', run, id)
      call('ZREM', dead, id)
    end
    if not first or at < first then first = at end
  end
  results[#results + 1] = result
end
if first then hint(first, now, ARGV[2]) end
return results
