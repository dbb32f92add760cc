-- Lists tasks, the earliest first. ARGV: where (due, run, dead, retry), how many to skip, how many at most.
-- Returns of each: id, score, state or '', record.
local places = {due = due, run = run, dead = dead}
local found = call('ZRANGE', places[ARGV[1]], ARGV[2], ARGV[2] + ARGV[3] - 1, 'WITHSCORES')
local ids, reply = {}, {}
for i = 1, #found, 2 do ids[#ids + 1] = found[i] end
if #ids == 0 then return reply end
local states = call('HMGET', state, unpack(ids))
local records = call('HMGET', body, unpack(ids))
for i, id in ipairs(ids) do
  reply[#reply + 1] = id
  reply[#reply + 1] = whole(found[i * 2])
  reply[#reply + 1] = states[i] or ''
  reply[#reply + 1] = records[i] or ''
end
return reply
