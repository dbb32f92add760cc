-- Renews who owns the shard, puts back tasks whose lease has ended, and moves due ones to run.
-- ARGV:   1 time in ms or '', 2 worker, 3 '1' to take the shard even if another's ownership lives,
--         4 token of what is claimed, 5 most tasks, up to 100, 6 most bytes of records,
--         7 ms of the tasks' lease, 8 most deliveries of a task, 9 ms of ownership,
--         10 ms to the owner's next look, 11 starts in a second, 0 for no rate
-- Answer: 1 now in ms, 2 owner, '' if Redis knew nothing of the shard, 3 ms until the worker should
--         look again; and if it is the owner 4 '1' if more is due, else '0', 5 tasks put back,
--         6 tasks dead, of the tasks claimed 7 ids, 8 due times, 9 states, 10 records, and 11 '1' if
--         keys of the shard were deleted, else '0'
-- A state is "token cancelled attempts deliveries occurrence reason". The token of what runs is that
-- of its claim, a dot, and when it was due in ms; of what does not run it is -.
local worker, token, most = ARGV[2], ARGV[4], tonumber(ARGV[5])
local now, seen = clock(math.floor)
local expiry = now + ARGV[7] -- of a lease that begins now
allow_when_full()
local held = redis.call('HMGET', own, 'worker', 'until', 'paused', 'free', 'token', 'sweep', 'gone')
local owner, till, sweep = held[1], tonumber(held[2]) or 0, held[6] or 0
if till > now + ARGV[9] then till = 0 end -- the clock was set back since
if ARGV[3] ~= '1' and owner ~= worker and till > now then return {now, owner, till - now} end
if held[5] == token or held[7] == token then return redis.error_reply('AGAIN the client has sent this claim before, its answer was lost') end

-- Each record is that of a task that waits, runs or is dead. If it is not so, somebody deleted a key:
-- records that are left over are looked for, some at a time. Those that workers have come back.
local renewed = owner ~= worker or till < now + 1.5 * ARGV[10]
local broken = renewed and redis.call('HLEN', body) ~=
  redis.call('ZCARD', due) + redis.call('ZCARD', run) + redis.call('ZCARD', dead)
if broken then
  local page = redis.call('HSCAN', body, sweep, 'COUNT', 32)
  redis.call('HSET', own, 'sweep', page[1])
  for i = 1, #page[2], 2 do
    local id = page[2][i]
    if not (redis.call('ZSCORE', due, id) or redis.call('ZSCORE', run, id) or redis.call('ZSCORE', dead, id)) then
      if string.find(redis.call('HGET', state, id) or '-', '^%-') then
        redis.call('HDEL', state, id)
        redis.call('HDEL', body, id)
      else
        redis.call('ZADD', run, expiry, id)
      end
    end
  end
end

-- A lease that ends later than one that begins now is older than a step back of the clock.
for _, id in ipairs(redis.call('ZRANGEBYSCORE', run, '(' .. expiry, '+inf', 'LIMIT', 0, 100)) do
  redis.call('ZADD', run, expiry, id)
end

local back, died = 0, 0
for _, id in ipairs(redis.call('ZRANGEBYSCORE', run, '-inf', now, 'LIMIT', 0, 100)) do
  local had, cancelled, attempts, deliveries, rest =
    string.match(redis.call('HGET', state, id) or '- 0 0 0 ' .. now .. ' ', '^(%S+) (%d) (%d+) (%d+) (.*)$')
  if cancelled == '1' then
    redis.call('HDEL', body, id)
    redis.call('HDEL', state, id)
  elseif tonumber(deliveries) >= tonumber(ARGV[8]) then -- the task may be why its workers are lost
    local occurrence = string.match(rest, '^%d+')
    redis.call('HSET', state, id, '- 0 ' .. attempts .. ' ' .. deliveries .. ' ' .. occurrence ..
      ' given to ' .. deliveries .. ' workers, and none of them finished it')
    redis.call('ZADD', dead, now, id)
    died = died + 1
  else
    redis.call('HSET', state, id, '- 0 ' .. attempts .. ' ' .. deliveries .. ' ' .. rest)
    redis.call('ZADD', due, was_due(had, now), id)
    back = back + 1
  end
  redis.call('ZREM', run, id)
end

-- How many tasks may start: those that are due, unless the queue is paused, and what the rate
-- allows. free is when the rate allows the next start. What was not used is lost after 50 ms.
local n, gap = 0, ARGV[11] ~= '0' and 1000 / ARGV[11] or 0
local free = gap > 0 and math.max(tonumber(held[4]) or 0, now - 50) or 0
if free > now + gap + 1 then free = now end -- it is of a lower rate, which was another setting
if not held[3] and most > 0 and free <= now then
  n = math.min(most, redis.call('ZCOUNT', due, '-inf', now))
  if gap > 0 then n = math.min(n, math.floor((now - free) / gap) + 1) end
end
local rows = redis.call('ZRANGE', due, 0, n, 'WITHSCORES')
local ids, dues, states, records = {}, {}, {}, {}
if n > 0 then
  local all, room, leases, held = {}, tonumber(ARGV[6]), {}, {}
  for i = 1, n do all[i] = rows[2 * i - 1] end
  local olds = redis.call('HMGET', state, unpack(all))
  for i = 1, n do
    local record, k = redis.call('HGET', body, all[i]), #ids + 1 -- not all at once: each may be large
    if record then -- without a record there is no task
      room = room - #record
      if room < 0 and k > 1 then
        n = i - 1
        break
      end
      local at, st = tonumber(rows[2 * i])
      if olds[i] then
        local attempts, deliveries, rest = string.match(olds[i], '^%S+ %d (%d+) (%d+) (.*)$')
        st = token .. '.' .. at .. ' 0 ' .. attempts .. ' ' .. deliveries + 1 .. ' ' .. rest
      else
        st = token .. '.' .. at .. ' 0 0 1 ' .. at .. ' '
      end
      ids[k], dues[k], states[k], records[k] = all[i], at, st, record
      leases[2 * k - 1], leases[2 * k] = expiry, all[i]
      held[2 * k - 1], held[2 * k] = all[i], st
    else
      redis.call('HDEL', state, all[i])
    end
  end
  if #ids > 0 then
    redis.call('HSET', state, unpack(held))
    redis.call('ZADD', run, unpack(leases))
  end
  redis.call('ZREMRANGEBYRANK', due, 0, n - 1)
  redis.call('HSET', own, 'token', token)
  if gap > 0 then
    free = free + gap * n
    redis.call('HSET', own, 'free', free)
  end
end

local look = now + ARGV[10]
local first = math.min(look, tonumber(rows[2 * n + 2]) or look)
local next = held[3] and look or math.min(look, math.max(first, math.ceil(free)))
local ends = tonumber(redis.call('ZRANGE', run, 0, 0, 'WITHSCORES')[2]) or look
local more = next <= now
if renewed then till = now + ARGV[9] end
-- Scripts announce to the owner what is due before back. While the queue is paused, that is nothing.
redis.call('HSET', own, 'worker', worker, 'until', till, 'back', held[3] and 0 or first, 'seen', seen)
if renewed or more then hint(worker .. ' ' .. till - now .. (more and ' more' or '')) end

return {now, owner and worker or '', math.max(math.min(next, ends) - now, 0), more and 1 or 0, back, died,
  ids, dues, states, records, broken and 1 or 0}
