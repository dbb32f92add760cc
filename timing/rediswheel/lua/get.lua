-- Looks at a task. ARGV: id. Returns: where (due, run, dead) or '', score, state or '', record.
local id = ARGV[1]
local record = call('HGET', body, id)
if not record then return {'', '', '', ''} end
local old = call('HGET', state, id) or ''
for _, place in ipairs({{'due', due}, {'run', run}, {'dead', dead}}) do
  local score = whole(call('ZSCORE', place[2], id))
  if score then return {place[1], score, old, record} end
end
return {'', '', '', ''}
