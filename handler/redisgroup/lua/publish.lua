-- Tells ordered rooms whose keys share a slot what a node has to say, in its order: messages, users who have
-- come or gone, and the question where a room stands.
-- KEYS: receipt; for each item the stream, and of a user the node's members of the room, the room's users, the
-- node's tombstone, its rooms, and but in a cluster, where they are in another slot, the leases. Keys that need
-- not exist are those of users alone: while a slot moves, Redis refuses scripts with such keys.
-- ARGV: number of this command, 1 if this repeats what may have been taken, PUBLISH or SPUBLISH, database,
-- length of a stream, its time to live in ms, the server's identity as the node knows it, the node, for how long
-- the receipt is kept in ms; then three of each item:
-- message, '' and the entry with that identity; instead of '', of a message that may have been taken, to which
-- server and in which command it was sent first, as "identity number".
-- join or leave, a user, and who says so (node:seq). It may be said again without effect.
-- position and two of nothing, for where the room stands. A stream without entries is begun.
-- Returns for each item its id, or OK or DEAD of a user, or '!' and an error, or '?' if it cannot be known
-- whether it was taken before; then the identity.

-- The receipt is the number of the publisher's last command that was run. It outlives messages that
-- were trimmed, and is lost with those that were deleted with all others: there is one before the
-- publisher sends anything, as a command without items leaves it. A command that was given up may
-- still wait in a socket, and be run after the one that repeats it.
local held, full = redis.pcall('SET', KEYS[1], ARGV[1], 'PX', ARGV[9], 'GET'), nil
if type(held) == 'table' then -- which does not concern those who only look, nor what was taken before
  full, held = '!' .. held.err, redis.call('GET', KEYS[1])
elseif held and tonumber(held) > tonumber(ARGV[1]) then
  redis.call('SET', KEYS[1], held, 'PX', ARGV[9])
  return redis.error_reply('STALE a later command was here')
end
local again = ARGV[2] == '1'

local me, command, database, max, ttl, theirs, node = identity(), ARGV[3], ARGV[4], ARGV[5], ARGV[6], ARGV[7], ARGV[8]
local at, seen, failed = {}, {}, {}
local keys, args = KEYS, ARGV

-- earlier returns the id of a message that was taken before, '?' if that cannot be known, or nil. It
-- looks at the newest entries only.
local function earlier(key, known, entry)
  local server, number = string.match(known, '^(%S*) (%d+)$')
  if not server then return nil end
  if server == me and held and tonumber(held) < tonumber(number) then return nil end
  if not seen[key] then
    seen[key] = {}
    for _, e in ipairs(redis.call('XREVRANGE', key, '+', '-', 'COUNT', 4000)) do
      seen[key][string.match(e[2][2], '^%S+ (%S+)') or ''] = e[1]
    end
  end
  return seen[key][string.match(entry, '^%S+ (%S+)')] or '?'
end

-- position is asked when the room gets its first member of a process: a stream is kept as long as it has any.
local act = {position = function(key)
  local id = stands(key, command, database, ttl)
  redis.pcall('PEXPIRE', key, ttl) -- not before: a script that has written is not refused a stream when memory is full
  return id
end}

-- message adds an entry where the stream stands, in a new epoch if there must be one.
function act.message(key, _, entry, op)
  at[key] = at[key] or open(key, me)
  if theirs ~= me then entry = me .. string.match(entry, '^%S*(.*)$') end
  return append(key, at[key], entry, op == 'message', command, database, max, ttl)
end

-- change notes that a user has come or gone. Only the first and the last of a user are events.
local function change(key, user, from, op, members, users, tombstone, rooms, leases)
  if redis.call('EXISTS', tombstone) == 1 then return 'DEAD' end
  if leases then
    local t = redis.call('TIME')
    local lease = tonumber(redis.call('ZSCORE', leases, node) or 0)
    if lease <= tonumber(t[1]) * 1000 + math.floor(tonumber(t[2]) / 1000) then error({err = 'NOLEASE of ' .. node}) end
  end
  if redis.call(op == 'join' and 'SADD' or 'SREM', members, user) == 0 then return 'OK' end
  local room, kind, n = string.match(key, '}o:(.*)$'), 'j', redis.call('HINCRBY', users, user, op == 'join' and 1 or -1)
  if op == 'join' then
    redis.call('SADD', rooms, room)
    if n > 1 then return 'OK' end
  else
    if redis.call('EXISTS', members) == 0 then redis.call('SREM', rooms, room) end
    if n > 0 then return 'OK' end
    redis.call('HDEL', users, user)
    kind = 'l'
  end
  act.message(key, '', me .. ' ' .. from .. ' ' .. kind .. '\n' .. user, op)
  return 'OK'
end
act.join, act.leave = change, change

local out, k, many = {}, 2, command == 'PUBLISH' and 6 or 5
for i = 10, #args, 3 do
  local op, key, done = args[i], keys[k], nil
  if op ~= 'position' then -- what follows one that failed must not overtake it
    done = op == 'message' and again and earlier(key, args[i + 1], args[i + 2]) or full or failed[key]
  end
  if not done then
    local ok, err = pcall(act[op], key, args[i + 1], args[i + 2], op, keys[k + 1], keys[k + 2], keys[k + 3], keys[k + 4], many == 6 and keys[k + 5])
    done = ok and err or '!' .. (type(err) == 'table' and err.err or tostring(err))
    if not ok then failed[key] = done end
  end
  k = k + ((op == 'join' or op == 'leave') and many or 1)
  out[#out + 1] = done
end
out[#out + 1] = me
return out
