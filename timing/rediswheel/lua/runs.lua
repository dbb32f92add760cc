-- Ends runs, or extends their leases.
-- KEYS:   from 7 on the keys of results
-- ARGV:   1 time in ms or ''; then of each: id, token, what, number, text
-- What:   done leaves nothing of the task; keep is done with the text as a result, for as many ms as
--         the number says; next waits for another occurrence; retry counts an attempt, with the text
--         as the reason; release is as if the task had not been started; dead gives it up, with a
--         reason; extend is no end. Else the number is a time in ms, or a negative delay in ms
-- Answer: a word for each: done; back, as it waits again; dead; cancelled, also if it is extended;
--         extended; stale, as the token is not that of the task's run
local now = clock(math.ceil)
local ids, gone, ended, words, first, results = {}, {}, {}, {}, math.huge, 6
allow_when_full()
for i = 2, #ARGV, 5 do ids[#ids + 1] = ARGV[i] end
local states = redis.call('HMGET', state, unpack(ids))
for i, id in ipairs(ids) do
  local token, what, at, text = ARGV[5 * i - 2], ARGV[5 * i - 1], tonumber(ARGV[5 * i]), ARGV[5 * i + 1]
  local held = states[i] and string.find(states[i], token .. ' ', 1, true) == 1
  local word = 'stale'
  if what == 'keep' then
    results = results + 1
    if held then redis.call('SET', KEYS[results], text, 'PX', at) end
  elseif at <= 0 then
    at = now - at
  end
  if held and what == 'extend' then
    redis.call('ZADD', run, at, id)
    word = string.find(states[i], '^%S+ 1 ') and 'cancelled' or 'extended'
  elseif held then
    ended[#ended + 1] = id
    local cancelled, attempts, deliveries, occurrence, old =
      string.match(states[i], '^%S+ (%d) (%d+) (%d+) (%d+) (.*)$')
    if what == 'done' or what == 'keep' or cancelled == '1' then
      gone[#gone + 1] = id
      word = (what == 'done' or what == 'keep') and 'done' or 'cancelled'
    elseif what == 'dead' then
      redis.call('HSET', state, id, '- 0 ' .. attempts + 1 .. ' ' .. deliveries .. ' ' .. occurrence .. ' ' .. text)
      redis.call('ZADD', dead, now, id)
      word = 'dead'
    else
      if what == 'next' then
        redis.call('HDEL', state, id)
      elseif what == 'retry' then
        redis.call('HSET', state, id, '- 0 ' .. attempts + 1 .. ' 0 ' .. occurrence .. ' ' .. text)
      else
        redis.call('HSET', state, id, '- 0 ' .. attempts .. ' ' .. deliveries - 1 .. ' ' .. occurrence .. ' ' .. old)
      end
      redis.call('ZADD', due, at, id)
      first = math.min(first, at)
      word = 'back'
    end
  end
  words[i] = word
end
if #gone > 0 then
  redis.call('HDEL', body, unpack(gone))
  redis.call('HDEL', state, unpack(gone))
end
if #ended > 0 then redis.call('ZREM', run, unpack(ended)) end
if first < math.huge then hint_due(first, now) end
return table.concat(words, ' ')
