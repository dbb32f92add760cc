-- recover deals with a batch whose lease has run out: its worker is gone, or cannot reach Redis.
-- That is no failed attempt of its tasks, but one that comes back too often is likely to be the
-- reason. Returns how many were put back, and how many are dead for that.
local function recover(b, o, now, deliverable)
  local back, died = 0, 0
  for id in pairs(o.due) do
    local cancelled, attempts, deliveries, occurrence, reason = parse(b.holds(o, id))
    if cancelled == 1 then
      call('HDEL', body, id)
    elseif deliveries >= deliverable then
      call('HSET', state, id, format(0, attempts, deliveries, occurrence,
        'given to ' .. deliveries .. ' workers, and none of them finished it'))
      call('ZADD', dead, now, id)
      died = died + 1
    else
      call('HSET', state, id, format(0, attempts, deliveries, occurrence, reason))
      call('ZADD', due, now, id)
      back = back + 1
    end
  end
  call('HDEL', run, o.token)
  return back, died
end

-- expire recovers the batches whose lease has run out, up to about a hundred tasks. Returns how
-- many were put back and are dead, and when the next lease ends, or ''.
local function expire(now, deliverable)
  local b, all, back, died, ends = batches(), call('HGETALL', run), 0, 0, ''
  for i = 1, #all, 2 do
    local lease = tonumber(string.match(all[i + 1], '^%d+'))
    if lease <= now and back + died < 100 then
      local more, lost = recover(b, b.open(all[i], all[i + 1]), now, deliverable)
      back, died = back + more, died + lost
    elseif ends == '' or lease < ends then
      ends = lease
    end
  end
  return back, died, ends == '' and '' or string.format('%d', ends)
end

