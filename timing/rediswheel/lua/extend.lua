-- Extends leases. ARGV: time or '', lease in ms, then of each task: id, token. Returns a list: held or stale.
begin()
local now = clock(ARGV[1])
local lease = now + tonumber(ARGV[2])
local ids, results = {}, {}
for i = 3, #ARGV, 2 do ids[#ids + 1] = ARGV[i] end
local states = call('HMGET', state, unpack(ids))
for i, id in ipairs(ids) do
  local token = parse(states[i])
  if token > 0 and token == tonumber(ARGV[2 + i * 2]) then
    call('ZADD', run, lease, id)
    results[i] = 'held'
  else
    results[i] = 'stale'
  end
end
return results
