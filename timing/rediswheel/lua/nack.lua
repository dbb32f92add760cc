-- Ends runs after which something is left of the task.
-- KEYS:   1 due, 2 run, 3 state, 4 body, 5 own, 6 dead
-- ARGV:   1 time in ms or ''; then of each: id, token, what, due time in ms or negative delay in
--         ms, reason
-- What:   retry counts an attempt; next waits for another occurrence; release is as if the task had
--         not been
--         started; dead gives it up
-- Answer: a letter for each: b put back, x dead, c it was cancelled, s stale
local due, run, state, body, own, dead = unpack(KEYS)
local t = redis.call('TIME')
local now = tonumber(ARGV[1]) or math.ceil(t[1] * 1000 + t[2] / 1000)
local letters, first = {}, math.huge
redis.call('HDEL', own, '') -- at maxmemory only a script that has removed something may write
for i = 2, #ARGV, 5 do
  local id, token, what, at, reason = ARGV[i], ARGV[i + 1], ARGV[i + 2], tonumber(ARGV[i + 3]), ARGV[i + 4]
  local letter = 's'
  local held, cancelled, attempts, deliveries, occurrence, old =
    string.match(redis.call('HGET', state, id) or '', '^(%S+) (%d) (%d+) (%d+) (%d+) (.*)$')
  if held == token then
    if cancelled == '1' then
      redis.call('HDEL', body, id)
      redis.call('HDEL', state, id)
      letter = 'c'
    elseif what == 'dead' then
      redis.call('HSET', state, id, '- 0 ' .. attempts + 1 .. ' ' .. deliveries .. ' ' .. occurrence .. ' ' .. reason)
      redis.call('ZADD', dead, now, id)
      letter = 'x'
    else
      if what == 'next' then
        redis.call('HDEL', state, id)
      elseif what == 'retry' then
        redis.call('HSET', state, id, '- 0 ' .. attempts + 1 .. ' 0 ' .. occurrence .. ' ' .. reason)
      else
        redis.call('HSET', state, id, '- 0 ' .. attempts .. ' ' .. deliveries - 1 .. ' ' .. occurrence .. ' ' .. old)
      end
      if at <= 0 then at = now - at end
      redis.call('ZADD', due, at, id)
      if at < first then first = at end
      letter = 'b'
    end
    redis.call('ZREM', run, id)
  end
  letters[#letters + 1] = letter
end
local back = tonumber(redis.call('HGET', own, 'back'))
if back and first < back then
  redis.call('HSET', own, 'back', first)
  redis.call('PUBLISH', string.match(own, '^[^{]*') .. 'hints', 'due ' .. own .. ' ' .. first)
end
return table.concat(letters)
