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
  return {sec, usec, owner, int(till), '', '', 0, 0}
end

-- recover deals with a task whose lease has run out: its worker is gone, or cannot reach Redis. That
-- is no failed attempt of the task, but one that comes back too often is likely to be the reason.
local function recover(id)
  local _, attempts, deliveries, cancelled, occurrence, reason = parse(redis.call('HGET', state, id))
  if cancelled == 1 then
    forget(id)
  elseif deliveries >= deliverable then
    redis.call('HSET', state, id, format(0, attempts, deliveries, 0, occurrence,
      'given to ' .. deliveries .. ' workers, and none of them finished it'))
    redis.call('ZADD', dead, int(now), id)
    redis.call('ZREM', run, id)
    return 1
  else
    redis.call('HSET', state, id, format(0, attempts, deliveries, 0, occurrence, reason))
    redis.call('ZADD', due, int(now), id)
  end
  redis.call('ZREM', run, id)
  return 0
end

local expired = redis.call('ZRANGEBYSCORE', run, '-inf', int(now), 'LIMIT', 0, 100)
local died = 0
for _, id in ipairs(expired) do died = died + recover(id) end

local reply = {sec, usec, owner, int(till), '', '', #expired - died, died}
local got = {}
if most > 0 then
  got = redis.call('ZRANGEBYSCORE', due, '-inf', int(now), 'WITHSCORES', 'LIMIT', 0, most)
end
if #got > 0 then
  local ids, leases, states = {}, {}, {}
  for i = 1, #got, 2 do ids[#ids + 1] = got[i] end
  local records = redis.call('HMGET', body, unpack(ids))
  local olds = redis.call('HMGET', state, unpack(ids))
  token = math.max(token, now) -- never one that was given before a failover that lost the count
  local gone = {}
  for i, id in ipairs(ids) do
    local record = records[i]
    if record then
      room = room - #record
      if room < 0 and i > 1 then break end
      local at = tonumber(got[i * 2])
      local _, attempts, deliveries, _, occurrence, reason = parse(olds[i])
      if occurrence == 0 then occurrence = at end
      token = token + 1
      deliveries = deliveries + 1
      leases[#leases + 1] = int(lease)
      leases[#leases + 1] = id
      states[#states + 1] = id
      states[#states + 1] = format(token, attempts, deliveries, 0, occurrence, reason)
      for _, v in ipairs({id, int(at), int(token), attempts, deliveries, int(occurrence), record}) do
        reply[#reply + 1] = v
      end
    end
    gone[#gone + 1] = id
  end
  if #leases > 0 then
    redis.call('ZADD', run, unpack(leases))
    redis.call('HSET', state, unpack(states))
  end
  redis.call('ZREM', due, unpack(gone))
end

local next = redis.call('ZRANGE', due, 0, 0, 'WITHSCORES')[2]
local ends = redis.call('ZRANGE', run, 0, 0, 'WITHSCORES')[2]
if next then reply[5] = int(tonumber(next)) end
if ends then reply[6] = int(tonumber(ends)) end
if mode == 'help' then
  if #got > 0 then redis.call('HSET', own, 'token', int(token)) end
  return reply
end
till = now + tonumber(ARGV[8])
local back = math.min(now + tonumber(ARGV[9]), tonumber(next) or math.huge)
redis.call('HSET', own, 'worker', worker, 'until', int(till), 'back', int(back), 'token', int(token))
if pulse ~= '' then redis.call('PUBLISH', channel, pulse) end
reply[3], reply[4] = worker, int(till)
return reply
