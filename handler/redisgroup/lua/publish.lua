-- Publishes messages of ordered rooms whose keys share a slot.
-- KEYS: fence, streams. ARGV: attempt, 1 if this repeats messages that may have been taken,
-- PUBLISH or SPUBLISH, length of a stream, its time to live in ms, the server's identity as the
-- publisher knows it or ''; then for each message the place of its stream in KEYS, who published it
-- (node:seq kind), what the publisher knows, data. What it knows is "epoch-*", if the stream's last
-- entry is of that epoch and identity, or ''; but in a repetition, of a message that may have been
-- taken, the identity of the server that it was sent to and the last id, as "identity id".
-- Returns for each message its id, or '!' and an error, or '?' if it cannot be known whether an
-- earlier attempt was lost; then the identity.

-- An attempt that was given up may still wait in a socket, and be run after the one that repeats it.
local held = redis.call('GET', KEYS[1])
if held and tonumber(held) > tonumber(ARGV[1]) then
  return redis.error_reply('STALE a later attempt was here')
end
local again = ARGV[2] == '1'
if again then redis.call('SET', KEYS[1], ARGV[1], 'PX', 3600000) end

local me, publish, max, ttl = identity(), ARGV[3], ARGV[4], ARGV[5]
local at, seen, failed = {}, {}, {}
local continues = not again and ARGV[6] == me

-- continue adds an entry to the epoch that the publisher knows, without looking at the stream, and
-- publishes it. nil: it is not the stream's epoch any more.
local function continue(key, from, epoch, data)
  local head = me .. ' ' .. from
  local id = redis.pcall('XADD', key, 'MAXLEN', '~', max, epoch, 'h', head, 'd', data)
  if type(id) ~= 'string' then return nil end
  local tail = string.sub(id, -2)
  if tail == '-0' then -- the stream was deleted: numbers are lost, and count from 1
    redis.call('XDEL', key, id)
    at[key] = {epoch = math.max(now(), tonumber(string.match(id, '^%d+')) + 1), n = 0}
    return nil
  end
  if tail == '-1' or tail == '01' then redis.call('PEXPIRE', key, ttl) end
  local heard = redis.pcall(publish, key, id .. ' ' .. head .. '\n' .. data)
  if type(heard) == 'table' then
    failed[key] = '!' .. heard.err
    return failed[key]
  end
  return id
end

-- earlier returns the ids that a room's stream has by publisher, and its oldest entry.
local function earlier(key)
  local s = {ids = {}, oldest = nil, newest = nil, full = false}
  local entries = redis.call('XRANGE', key, '-', '+')
  for _, e in ipairs(entries) do
    s.ids[string.match(e[2][2], '^%S+ (%S+)')] = e[1]
  end
  if entries[1] then s.oldest, s.newest = entries[1][1], entries[#entries][1] end
  s.full = #entries >= tonumber(max)
  return s
end

-- split returns epoch and number of an id.
local function split(id)
  local epoch, n = string.match(id, '^(%d+)-(%d+)$')
  return tonumber(epoch), tonumber(n)
end

-- lost reports whether what is not in the stream may have been there: it was trimmed since, the
-- stream is another one, or the server was restarted or is another, and may have less.
local function lost(s, known)
  local server, last = string.match(known, '^(%S*) (%S*)$')
  if server ~= '' and server ~= me then return true end
  if last == '' or last == '0-0' then return s.full end
  if not s.oldest then return true end
  local ke, kn = split(last)
  local oe, on = split(s.oldest)
  local ne, nn = split(s.newest)
  return oe > ke or (oe == ke and on > kn + 1) or ne < ke or (ne == ke and nn < kn)
end

local out = {}
for i = 7, #ARGV, 4 do
  local key, from, known, data = KEYS[tonumber(ARGV[i])], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3]
  local done
  if again then
    seen[key] = seen[key] or earlier(key)
    done = seen[key].ids[string.match(from, '^%S+')]
    if not done and known ~= '' and lost(seen[key], known) then done = '?' end
  end
  done = done or failed[key] -- what follows one that failed must not overtake it
  if not done and continues and known ~= '' and not at[key] then
    done = continue(key, from, known, data)
  end
  if not done then
    local ok, err = pcall(function()
      at[key] = at[key] or open(key, me)
      return append(key, at[key], me, from, data, publish, max, ttl)
    end)
    if ok then
      done = err
    else
      failed[key] = '!' .. (type(err) == 'table' and err.err or tostring(err))
      done = failed[key]
    end
  end
  out[#out + 1] = done
end
out[#out + 1] = me
return out
