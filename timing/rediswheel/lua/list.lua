-- Lists tasks, the earliest first.
-- ARGV:   1 which of them (due, run, dead), 2 how many to skip, 3 how many at most, 4 most bytes of
--         records
-- Answer: of each task: id, score, state or '', record or ''
local found = redis.call('ZRANGE', ({due = due, run = run, dead = dead})[ARGV[1]], ARGV[2], ARGV[2] + ARGV[3] - 1, 'WITHSCORES')
local reply, room = {}, tonumber(ARGV[4])
for i = 1, #found, 2 do
  local id, n = found[i], #reply
  local record = redis.call('HGET', body, id) or ''
  room = room - #record
  if room < 0 and n > 0 then break end
  reply[n + 1], reply[n + 2] = id, tonumber(found[i + 1])
  reply[n + 3], reply[n + 4] = redis.call('HGET', state, id) or '', record
end
return reply
