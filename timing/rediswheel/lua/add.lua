-- Adds tasks to one shard.
-- KEYS:   1 due, 2 run, 3 state, 4 body, 5 own, 6 dead
-- ARGV:   1 time in ms, or '' for Redis' own; then of each task:
--         policy (a replace, i ignore, c conflict), id, record,
--         due time in ms or negative delay in ms
-- Answer: a letter for each task: a added, also in place of another; i ignored; c conflict
-- A record is written first. At maxmemory Redis refuses that, and then nothing has happened.
local due, run, state, body, own, dead = unpack(KEYS)
local t = redis.call('TIME')
local now = tonumber(ARGV[1]) or t[1] * 1000 + math.floor(t[2] / 1000)
local after = tonumber(ARGV[1]) or math.ceil(t[1] * 1000 + t[2] / 1000) -- the first ms that has not begun
local letters, first = {}, math.huge
for i = 2, #ARGV, 4 do
  local letter, id, record, at = ARGV[i], ARGV[i + 1], ARGV[i + 2], tonumber(ARGV[i + 3])
  local fresh = redis.call(letter == 'a' and 'HSET' or 'HSETNX', body, id, record) == 1
  if not fresh and letter ~= 'a' then
    -- A task that is dead, or was cancelled while it runs, is over: another takes its place.
    local held = redis.call('HGET', state, id)
    if redis.call('ZSCORE', dead, id) or held and string.find(held, '^%S+ 1 ') then
      redis.call('HSET', body, id, record)
      letter = 'a'
    end
  elseif fresh then
    letter = 'a'
  end
  if letter == 'a' then
    if at < 0 then at = after - at elseif at < now then at = now end
    redis.call('ZADD', due, at, id)
    if not fresh then
      redis.call('ZREM', run, id)
      redis.call('ZREM', dead, id)
      redis.call('HDEL', state, id) -- with it the token of a run, which is worth nothing from now on
    end
    if at < first then first = at end
  end
  letters[#letters + 1] = letter
end
if first < now + 60000 then -- the owner looks each minute at least
  local back = tonumber(redis.call('HGET', own, 'back'))
  if back and first < back then
    redis.call('HSET', own, 'back', first)
    redis.call('PUBLISH', string.match(own, '^[^{]*') .. 'hints', 'due ' .. own .. ' ' .. first)
  end
end
return table.concat(letters)
