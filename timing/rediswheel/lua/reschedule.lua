-- Moves a task. ARGV: time or '', channel, id, due time in ms or its negative delay. Returns moved,
-- running or missing. What was put off by a failure, and is moved, keeps its attempts.
begin()
local _, now = clock(ARGV[1])
local id = ARGV[3]
if not call('ZSCORE', due, id) then
  return call('HEXISTS', body, id) == 1 and not call('ZSCORE', dead, id) and 'running' or 'missing'
end
local at = tonumber(ARGV[4])
if at < now then at = at < 0 and now - at or now end
call('ZADD', due, at, id)
hint(at, ARGV[2])
return 'moved'
