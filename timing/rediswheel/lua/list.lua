-- Lists tasks, the earliest first. ARGV: where (due, run, dead), how many to skip, how many at
-- most. Returns of each: id, score, state or '', record.
local skip, most = tonumber(ARGV[2]), tonumber(ARGV[3])
local rows = {} -- of each id, score, state
if ARGV[1] == 'run' then
  local b, all = batches(), call('HGETALL', run)
  for i = 1, #all, 2 do
    local o = b.open(all[i], all[i + 1])
    for id in pairs(o.due) do rows[#rows + 1] = {id, o.lease, b.holds(o, id)} end
  end
  table.sort(rows, function(a, b) return a[2] < b[2] or a[2] == b[2] and a[1] < b[1] end)
  rows = {unpack(rows, skip + 1, math.min(#rows, skip + most))}
else
  local found = call('ZRANGE', ARGV[1] == 'due' and due or dead, skip, skip + most - 1, 'WITHSCORES')
  for i = 1, #found, 2 do
    rows[#rows + 1] = {found[i], whole(found[i + 1]), call('HGET', state, found[i]) or ''}
  end
end
local reply = {}
for _, row in ipairs(rows) do
  for k = 1, 3 do reply[#reply + 1] = row[k] end
  reply[#reply + 1] = call('HGET', body, row[1]) or ''
end
return reply
