-- Ends tasks that were done, claims due ones, puts back those whose lease has run out, and renews
-- who looks after the shard. ARGV: time or '', worker, mode (renew, take or help), most tasks, most
-- bytes, lease in ms, most deliveries, ms of ownership, ms to the next refresh; then tasks that
-- were done, as done.lua says. Renewing is refused while another worker owns the shard; what was
-- done is done. Returns: seconds, microseconds, owner, owned until, next due or '', next lease or
-- '', put back, dead, done.lua's letters; and if there are tasks their token, their batch as
-- batch.lua says, and their records. The owner is '' in place of the worker if Redis knew nothing of
-- the shard: it is new, or has been lost.
local digits, us, sec, usec = clock(ARGV[1])
local worker, mode, most, now = ARGV[2], ARGV[3], ARGV[4] + 0, digits + 0
local letters, first = '', nil
if ARGV[10] then letters, first = done(10) end
if not string.find(letters, 'd', 1, true) then begin() end
local held = call('HMGET', own, 'worker', 'until', 'token', 'ends')
local owner, till, token, ends = held[1] or '', (held[2] or 0) + 0, held[3] or '0', held[4]
if mode == 'renew' and owner ~= worker and till > now then
  if first then hint(first) end
  return {sec, usec, owner, till, '', '', 0, 0, letters}
end

-- No lease ends before "ends", if there is such a time, and if it is empty there is no lease: it
-- was the first to end when last looked at, and has been moved forth only by those that were given
-- later.
local back, died = 0, 0
if not ends or ends ~= '' and ends + 0 <= now then back, died, ends = expire(now, ARGV[7] + 0) end

-- The first that are due, and who comes after them. (ZRANGEBYSCORE does not know the length of its
-- answer before, which costs Redis a block of 16 kB.)
local n = most > 0 and math.min(most, call('ZCOUNT', due, '-inf', digits)) or 0
local rows, taken = call('ZRANGE', due, 0, n, 'WITHSCORES'), n
local text, records
if n > 0 then
  local ids, dues = {}, {}
  for i = 1, n do ids[i], dues[i] = rows[2 * i - 1], rows[2 * i] end
  records = call('HMGET', body, unpack(ids))
  local k, room = 0, ARGV[5] + 0 -- k: how many are claimed
  for i = 1, n do
    local record = records[i]
    if record then
      room = room - #record
      if room < 0 and k > 0 then
        taken = i - 1
        break
      end
      k = k + 1
      if k < i then ids[k], dues[k], records[k] = ids[i], dues[i], record end
    end
  end
  for i = k + 1, n do ids[i], dues[i], records[i] = nil, nil, nil end
  if k > 0 then
    local states = call('HLEN', state) > 0 and resume(ids) or ''
    local lease = string.format('%d', now + ARGV[6])
    if us > token then token = us else token = string.format('%d', token + 1) end -- greater than all before
    text = lease .. '\n' .. table.concat(ids, '\n') .. '\n\n' .. table.concat(dues, '\n') .. '\n\n' .. states
    call('HSET', run, token, text)
    if ends == '' or lease < ends then ends = lease end
  end
  call('ZREMRANGEBYRANK', due, 0, taken - 1)
end

local next = whole(rows[2 * taken + 2])
if mode == 'help' then
  if first then hint(first) end
  if n > 0 or ends ~= held[4] then call('HSET', own, 'token', token, 'ends', ends) end
  return {sec, usec, owner, till, next or '', ends, back, died, letters, token, text, records}
end
local again, owned = string.format('%d', now + ARGV[9]), ARGV[8] + 0
if next and (#next < #again or #next == #again and next < again) then again = next end
if owner == worker and till > now + owned * 5 / 6 then
  call('HSET', own, 'back', again, 'token', token, 'ends', ends)
else
  till = now + owned
  call('HSET', own, 'worker', worker, 'until', string.format('%d', till), 'back', again, 'token', token, 'ends', ends)
end
return {sec, usec, held[3] and worker or '', till, next or '', ends, back, died, letters, token, text, records}
