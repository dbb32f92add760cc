-- Ends runs of tasks that were not done. ARGV: time or '', then of each: id, token, what (retry,
-- dead, next or release), due time in ms or '', delay in ms, reason. retry counts an attempt; next
-- gives this occurrence up and waits for another; release is as if the task had not been started.
-- Returns a letter for each: b for put back, x for dead, c if it was cancelled, s if the token is
-- stale.
begin()
local now = after(clock(ARGV[1]))
local b, first = batches(), nil

local function later(id, at, record)
  call('ZADD', due, at, id)
  if record then call('HSET', state, id, record) end
  if not first or at < first then first = at end
  return 'b'
end

local function nack(id, o, what, at, delay, why)
  if not o or not o.due[id] then return 's' end
  local cancelled, attempts, deliveries, occurrence, reason = parse(b.holds(o, id))
  o.due[id] = nil
  if cancelled == 1 then
    call('HDEL', body, id)
    return 'c'
  end
  at = at ~= '' and tonumber(at) or now + tonumber(delay)
  if what == 'next' then return later(id, at) end
  if what == 'retry' then return later(id, at, format(0, attempts + 1, 0, occurrence, why)) end
  if what == 'release' then return later(id, at, format(0, attempts, deliveries - 1, occurrence, reason)) end
  call('HSET', state, id, format(0, attempts + 1, deliveries, occurrence, why))
  call('ZADD', dead, now, id)
  return 'x'
end

local results, opened = {}, {}
for i = 2, #ARGV, 6 do
  local token = ARGV[i + 1]
  if opened[token] == nil then
    local text = call('HGET', run, token)
    opened[token] = text and b.open(token, text)
  end
  results[#results + 1] = nack(ARGV[i], opened[token], ARGV[i + 2], ARGV[i + 3], ARGV[i + 4], ARGV[i + 5])
end
for _, o in pairs(opened) do if o then b.shut(o) end end
if first then hint(string.format('%d', first)) end
return table.concat(results)
