-- Publishes messages of ordered rooms whose keys share a slot.
-- KEYS: fence, streams. ARGV: attempt, 1 if this repeats messages that may have been taken,
-- PUBLISH or SPUBLISH, length of a stream, its time to live in ms; then for each message the place
-- of its stream in KEYS, who published it (node:seq kind), the last id the publisher knew, data.
-- Returns for each message its id, or '!' and an error, or '?' if it cannot be known whether an
-- earlier attempt was lost.

-- An attempt that was given up may still wait in a socket, and be run after the one that repeats it.
local held = redis.call('GET', KEYS[1])
if held and tonumber(held) > tonumber(ARGV[1]) then
  return redis.error_reply('STALE a later attempt was here')
end
local again = ARGV[2] == '1'
if again then redis.call('SET', KEYS[1], ARGV[1], 'PX', 3600000) end

local me, publish, max, ttl = identity(), ARGV[3], ARGV[4], ARGV[5]
local at, seen, failed = {}, {}, {}

-- earlier returns the ids that a room's stream has by publisher, and its oldest entry.
local function earlier(key)
  local s = {ids = {}, oldest = nil, full = false}
  local entries = redis.call('XRANGE', key, '-', '+')
  for _, e in ipairs(entries) do
    s.ids[string.match(e[2][2], '^%S+ (%S+)')] = e[1]
  end
  if entries[1] then s.oldest = entries[1][1] end
  s.full = #entries >= tonumber(max)
  return s
end

-- lost reports whether what is not in the stream may have been there: it was trimmed since, or the
-- stream is another one.
local function lost(s, known)
  if known == '' then return s.full end
  local ke, kn = string.match(known, '^(%d+)-(%d+)$')
  if ke == '0' then return s.full end
  if not s.oldest then return true end
  local oe, on = string.match(s.oldest, '^(%d+)-(%d+)$')
  return tonumber(oe) > tonumber(ke) or (oe == ke and tonumber(on) > tonumber(kn) + 1)
end

local out = {}
for i = 6, #ARGV, 4 do
  local key, from, known, data = KEYS[tonumber(ARGV[i])], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3]
  local done
  if again then
    seen[key] = seen[key] or earlier(key)
    done = seen[key].ids[string.match(from, '^%S+')]
    if not done and lost(seen[key], known) then done = '?' end
  end
  done = done or failed[key] -- what follows one that failed must not overtake it
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
return out
