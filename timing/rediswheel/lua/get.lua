-- Looks at a task. ARGV: id. Returns: where (due, run, dead) or '', score, state or '', record,
-- token or ''.
local id = ARGV[1]
local record = call('HGET', body, id)
if not record then return {'', '', '', '', ''} end
for place, key in pairs({due = due, dead = dead}) do
  local score = whole(call('ZSCORE', key, id))
  if score then return {place, score, call('HGET', state, id) or '', record, ''} end
end
local b = batches()
local o = b.find(id)
if o then return {'run', o.lease, b.holds(o, id), record, o.token} end
return {'', '', '', '', ''}
