-- Claims due tasks, puts back those whose lease has run out, and renews who looks after the shard.
-- ARGV: time or '', worker, mode (renew, take or help), most tasks, most bytes, lease in ms, most
-- deliveries, ms of ownership, ms to the next refresh, channel, pulse or ''.
-- Renewing is refused, and nothing done, while another worker owns the shard.
-- Returns: seconds, microseconds, owner, owned until, next due or '', next lease or '', put back, dead,
-- then of each task: id, due, token, attempts, deliveries, occurrence, record.
begin()
local now, _, sec, usec = clock(ARGV[1])
local worker, mode, most, room = ARGV[2], ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])
local lease, deliverable, channel, pulse = now + tonumber(ARGV[6]), tonumber(ARGV[7]), ARGV[10], ARGV[11]
local held = redis.call('HMGET', own, 'worker', 'until', 'token')
local owner, till, token = held[1] or '', tonumber(held[2]) or 0, tonumber(held[3]) or 0
if mode == 'renew' and owner ~= worker and till > now then
  return {sec, usec, owner, till, '', '', 0, 0}
end

-- recover deals with a task whose lease has run out: its worker is gone, or cannot reach Redis. That
-- is no failed attempt of the task, but one that comes back too often is likely to be the reason.
local function recover(id)
  local _, cancelled, attempts, deliveries, occurrence, reason = parse(redis.call('HGET', state, id))
  if cancelled == 1 then
    forget(id)
  elseif deliveries >= deliverable then
    redis.call('HSET', state, id, format(0, 0, attempts, deliveries, occurrence,
      'given to ' .. deliveries .. ' workers, and none of them finished it'))
    redis.call('ZADD', dead, now, id)
    redis.call('ZREM', run, id)
    return 1
  else
    redis.call('HSET', state, id, format(0, 0, attempts, deliveries, occurrence, reason))
    redis.call('ZADD', due, now, id)
  end
  redis.call('ZREM', run, id)
  return 0
end

local ends = tonumber(redis.call('ZRANGE', run, 0, 0, 'WITHSCORES')[2])
local back, died = 0, 0
if ends and ends <= now then
  local expired = redis.call('ZRANGEBYSCORE', run, '-inf', now, 'LIMIT', 0, 100)
  for _, id in ipairs(expired) do died = died + recover(id) end
  back = #expired - died
  ends = tonumber(redis.call('ZRANGE', run, 0, 0, 'WITHSCORES')[2])
end

local reply = {sec, usec, owner, till, '', '', back, died}
local got = {}
if most > 0 then
  got = redis.call('ZRANGEBYSCORE', due, '-inf', now, 'WITHSCORES', 'LIMIT', 0, most)
end
if #got > 0 then
  local ids, leases, states = {}, {}, {}
  for i = 1, #got, 2 do ids[#ids + 1] = got[i] end
  local records = redis.call('HMGET', body, unpack(ids))
  local olds = redis.call('HMGET', state, unpack(ids))
  token = math.max(token, now) -- never one that was given before a failover that lost the count
  local gone, _ = {}
  for i, id in ipairs(ids) do
    local record = records[i]
    if record then
      room = room - #record
      if room < 0 and i > 1 then break end
      local at, attempts, deliveries, occurrence, reason = got[i * 2], 0, 0, 0, ''
      if olds[i] then
        _, _, attempts, deliveries, occurrence, reason = parse(olds[i])
      end
      if occurrence == 0 then occurrence = at end
      token = token + 1
      deliveries = deliveries + 1
      local n = #leases
      leases[n + 1], leases[n + 2] = lease, id
      states[n + 1], states[n + 2] = id, format(token, 0, attempts, deliveries, occurrence, reason)
      n = #reply
      reply[n + 1], reply[n + 2], reply[n + 3], reply[n + 4] = id, at, token, attempts
      reply[n + 5], reply[n + 6], reply[n + 7] = deliveries, occurrence, record
    end
    gone[#gone + 1] = id
  end
  if #leases > 0 then
    redis.call('ZADD', run, unpack(leases))
    redis.call('HSET', state, unpack(states))
    ends = ends or lease -- those before end before
  end
  redis.call('ZREM', due, unpack(gone))
end

local next = tonumber(redis.call('ZRANGE', due, 0, 0, 'WITHSCORES')[2])
if next then reply[5] = next end
if ends then reply[6] = ends end
if mode == 'help' then
  if #got > 0 then redis.call('HSET', own, 'token', token) end
  return reply
end
till = now + tonumber(ARGV[8])
local again = math.min(now + tonumber(ARGV[9]), next or math.huge)
redis.call('HSET', own, 'worker', worker, 'until', till, 'back', again, 'token', token)
if pulse ~= '' then redis.call('PUBLISH', channel, pulse) end
reply[3], reply[4] = worker, till
return reply
