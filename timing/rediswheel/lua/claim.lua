-- Ends tasks that were done, claims due ones, puts back those whose lease has run out, and renews who
-- looks after the shard. ARGV: time or '', worker, mode (renew, take or help), most tasks, most bytes,
-- lease in ms, most deliveries, ms of ownership, ms to the next refresh, channel; then tasks that were
-- done, as done.lua says. Renewing is refused while another worker owns the shard; what was done is done.
-- Returns: seconds, microseconds, owner, owned until, next due or '', next lease or '', put back, dead,
-- done.lua's letters, then of the tasks three lists: ids and states in turns, records, and due times, or ''
-- where that is the occurrence in the state; what is missing at the end of the third is ''.
local now, _, sec, usec = clock(ARGV[1])
local worker, mode, most = ARGV[2], ARGV[3], tonumber(ARGV[4])
local letters, first = '', nil
if ARGV[11] then letters, first = done(11) end
if not string.find(letters, 'd', 1, true) then begin() end
local held = call('HMGET', own, 'worker', 'until', 'token', 'ends')
local owner, till, token, ends = held[1] or '', tonumber(held[2] or 0), held[3] or '0', held[4]
if mode == 'renew' and owner ~= worker and till > now then
  if first then hint(first, ARGV[10]) end
  return {sec, usec, owner, till, '', '', 0, 0, letters}
end

-- No lease ends before "ends", if there is such a time: it was the first to end when last looked at, and
-- has been moved forth only by those that were given later.
local back, died = 0, 0
if not ends or ends == '' or tonumber(ends) <= now then
  ends = whole(call('ZRANGE', run, 0, 0, 'WITHSCORES')[2])
  if ends and tonumber(ends) <= now then
    local expired = call('ZRANGEBYSCORE', run, '-inf', now, 'LIMIT', 0, 100)
    for _, id in ipairs(expired) do died = died + recover(id, now, tonumber(ARGV[7])) end
    back = #expired - died
    ends = whole(call('ZRANGE', run, 0, 0, 'WITHSCORES')[2])
  end
end

local digits = string.format('%d', now)
-- The first that are due, and who comes after them. (ZRANGEBYSCORE does not know the length of its answer
-- before, which costs Redis a block of 16 kB.)
local n = most > 0 and math.min(most, call('ZCOUNT', due, '-inf', digits)) or 0
local rows, taken = call('ZRANGE', due, 0, n, 'WITHSCORES'), 0
local states, records, dues = {}, {}, {}
if n > 0 then
  local ids, k = {}, 0 -- k: how many are claimed
  for i = 1, n do ids[i] = rows[2 * i - 1] end
  records = call('HMGET', body, unpack(ids))
  local olds = call('HMGET', state, unpack(ids))
  local lease, room = string.format('%d', now + tonumber(ARGV[6])), tonumber(ARGV[5])
  token = string.format('%d', math.max(tonumber(token), now) + 1) -- never one that was given before a failover that lost it
  local fresh = token .. ' 0 0 1 '
  for i, id in ipairs(ids) do
    local record = records[i]
    if record then
      room = room - #record
      if room < 0 and i > 1 then break end
      local at = whole(rows[2 * i])
      k = k + 1
      records[k], states[2 * k - 1] = record, id
      if olds[i] then
        local _, _, attempts, deliveries, occurrence, reason = parse(olds[i])
        states[2 * k] = format(token, 0, attempts, deliveries + 1, occurrence > 0 and occurrence or at, reason)
        for t = #dues + 1, k - 1 do dues[t] = '' end
        dues[k] = at
      else
        states[2 * k] = fresh .. at .. ' '
      end
      rows[2 * k - 1], rows[2 * k] = id, lease -- for ZADD; what was there has been used
    end
    taken = i
  end
  for i = k + 1, n do records[i] = nil end
  if k > 0 then
    call('ZADD', run, lease, unpack(rows, 1, 2 * k - 1))
    call('HSET', state, unpack(states))
    if not ends or tonumber(lease) < tonumber(ends) then ends = lease end
  end
  call('ZREMRANGEBYRANK', due, 0, taken - 1)
end

local next = whole(rows[2 * taken + 2])
ends = ends or ''
if mode == 'help' then
  if first then hint(first, ARGV[10]) end
  if n > 0 or ends ~= held[4] then call('HSET', own, 'token', token, 'ends', ends) end
  return {sec, usec, owner, till, next or '', ends, back, died, letters, states, records, dues}
end
local again = now + tonumber(ARGV[9])
again = next and tonumber(next) < again and next or string.format('%d', again)
local owned = tonumber(ARGV[8])
if owner == worker and till > now + owned * 5 / 6 then
  call('HSET', own, 'back', again, 'token', token, 'ends', ends)
else
  till = now + owned
  call('HSET', own, 'worker', worker, 'until', string.format('%d', till), 'back', again, 'token', token, 'ends', ends)
end
return {sec, usec, worker, till, next or '', ends, back, died, letters, states, records, dues}
