-- Looks at a task.
-- ARGV:   1 id
-- Answer: 1 where it is (due, run, dead) or '', 2 its score there, 3 state or '', 4 record or ''
local id = ARGV[1]
for _, place in ipairs({{'due', due}, {'run', run}, {'dead', dead}}) do
  local score = redis.call('ZSCORE', place[2], id)
  if score then
    return {place[1], tonumber(score), redis.call('HGET', state, id) or '', redis.call('HGET', body, id) or ''}
  end
end
return {'', 0, '', ''}
