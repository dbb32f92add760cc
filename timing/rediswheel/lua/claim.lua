-- Ends tasks that were done, claims due ones, puts back those whose lease has run out, and renews who
-- looks after the shard. ARGV: time or '', worker, mode (renew, take or help), most tasks, most bytes,
-- lease in ms, most deliveries, ms of ownership, ms to the next refresh, channel; then tasks that were
-- done, as done.lua says. Renewing is refused while another worker owns the shard; what was done is done.
-- Returns: seconds, microseconds, owner, owned until, next due or '', next lease or '', put back, dead,
-- done.lua's letters, then of each task: id, due, state, record.
local now, _, sec, usec = clock(ARGV[1])
local worker, mode, most, room = ARGV[2], ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])
local owned, channel = tonumber(ARGV[8]), ARGV[10]
local letters, first = '', nil
if ARGV[11] then letters, first = done(11) end
if not string.find(letters, 'd', 1, true) then begin() end
local held = call('HMGET', own, 'worker', 'until', 'token', 'ends')
local owner, till, token, ends = held[1] or '', tonumber(held[2] or 0), tonumber(held[3] or 0), tonumber(held[4] or '')
if mode == 'renew' and owner ~= worker and till > now then
  if first then hint(first, now, channel) end
  return {sec, usec, owner, till, '', '', 0, 0, letters}
end

-- recover deals with a task whose lease has run out: its worker is gone, or cannot reach Redis. That
-- is no failed attempt of the task, but one that comes back too often is likely to be the reason.
local function recover(id, deliverable)
  local _, cancelled, attempts, deliveries, occurrence, reason = parse(call('HGET', state, id))
  if cancelled == 1 then
    forget(id)
  elseif deliveries >= deliverable then
    call('HSET', state, id, format(0, 0, attempts, deliveries, occurrence,
      'given to ' .. deliveries .. ' workers, and none of them finished it'))
    call('ZADD', dead, now, id)
    call('ZREM', run, id)
    return 1
  else
    call('HSET', state, id, format(0, 0, attempts, deliveries, occurrence, reason))
    call('ZADD', due, now, id)
  end
  call('ZREM', run, id)
  return 0
end

-- No lease ends before "ends", if there is such a time: it was the first to end when last looked at, and
-- has been moved forth only by those that were given later.
local old, back, died = ends, 0, 0
if not ends or ends <= now then
  ends = tonumber(call('ZRANGE', run, 0, 0, 'WITHSCORES')[2] or '')
  if ends and ends <= now then
    local expired = call('ZRANGEBYSCORE', run, '-inf', now, 'LIMIT', 0, 100)
    for _, id in ipairs(expired) do died = died + recover(id, tonumber(ARGV[7])) end
    back = #expired - died
    ends = tonumber(call('ZRANGE', run, 0, 0, 'WITHSCORES')[2] or '')
  end
end

local reply = {sec, usec, owner, till, '', '', back, died, letters}
local got = {}
if most > 0 then got = call('ZRANGEBYSCORE', due, '-inf', now, 'WITHSCORES', 'LIMIT', 0, most) end
if #got > 0 then
  local ids, leases, states, gone = {}, {}, {}, {}
  for i = 1, #got, 2 do ids[#ids + 1] = got[i] end
  local records, olds = call('HMGET', body, unpack(ids)), call('HMGET', state, unpack(ids))
  local lease = now + tonumber(ARGV[6])
  local score = string.format('%.0f', lease)
  token = math.max(token, now) -- never one that was given before a failover that lost the count
  for i, id in ipairs(ids) do
    local record = records[i]
    if record then
      room = room - #record
      if room < 0 and i > 1 then break end
      token = token + 1
      local at, new = got[i * 2], nil
      if olds[i] then
        local _, _, attempts, deliveries, occurrence, reason = parse(olds[i])
        new = format(token, 0, attempts, deliveries + 1, occurrence > 0 and occurrence or at, reason)
      else
        new = token .. ' 0 0 1 ' .. at .. ' '
      end
      local n = #leases
      leases[n + 1], leases[n + 2] = score, id
      states[n + 1], states[n + 2] = id, new
      n = #reply
      reply[n + 1], reply[n + 2], reply[n + 3], reply[n + 4] = id, at, new, record
    end
    gone[i] = id
  end
  if #leases > 0 then
    call('ZADD', run, unpack(leases))
    call('HSET', state, unpack(states))
    ends = math.min(ends or lease, lease)
  end
  call('ZREM', due, unpack(gone))
end

local next = tonumber(call('ZRANGE', due, 0, 0, 'WITHSCORES')[2] or '')
reply[5], reply[6] = next or '', ends or ''
if mode == 'help' then
  if first then hint(first, now, channel) end
  if #got > 0 or ends ~= old then call('HSET', own, 'token', token, 'ends', ends or '') end
  return reply
end
local again = math.min(now + tonumber(ARGV[9]), next or math.huge)
if owner == worker and till > now + owned * 5 / 6 then
  call('HSET', own, 'back', again, 'token', token, 'ends', ends or '')
else
  till = now + owned
  call('HSET', own, 'worker', worker, 'until', till, 'back', again, 'token', token, 'ends', ends or '')
end
reply[3], reply[4] = worker, till
return reply
