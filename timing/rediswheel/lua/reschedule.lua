-- Moves a task. ARGV: time or '', id, due time in ms or its negative delay. Returns moved,
-- running or missing. What was put off by a failure, and is moved, keeps its attempts.
begin()
local now = after(clock(ARGV[1]))
local id = ARGV[2]
if not call('ZSCORE', due, id) then
  return call('HEXISTS', body, id) == 1 and not call('ZSCORE', dead, id) and 'running' or 'missing'
end
local at = tonumber(ARGV[3])
if at < now then at = at < 0 and now - at or now end
call('ZADD', due, at, id)
hint(string.format('%d', at))
return 'moved'
