-- Publishes messages of ordered rooms whose keys share a slot.
-- KEYS: receipt, and the stream of each message. ARGV: number of this command, 1 if this repeats
-- messages that may have been taken, PUBLISH or SPUBLISH, database, length of a stream, its time to live in ms,
-- the server's identity as the publisher knows it; then for each message what the publisher knows, and
-- the entry with that identity. What it knows is "epoch-*", if the stream's last entry is of that epoch
-- and identity, or ''; but of a message that may have been taken, to which server and in which command
-- it was sent first, as "identity number".
-- Returns for each message its id, or '!' and an error, or '?' if it cannot be known whether it was
-- taken before; then the identity.

-- The receipt is the number of the publisher's last command that was run. It outlives messages that
-- were trimmed, and is lost with those that were deleted with all others: there is one before the
-- publisher sends anything, and the publisher sees to it that it does not expire. A command that was
-- given up may still wait in a socket, and be run after the one that repeats it.
local held = redis.call('SET', KEYS[1], ARGV[1], 'KEEPTTL', 'GET')
if not held then
  redis.call('PEXPIRE', KEYS[1], 3600000)
elseif tonumber(held) > tonumber(ARGV[1]) then
  redis.call('SET', KEYS[1], held, 'KEEPTTL')
  return redis.error_reply('STALE a later command was here')
end
local again = ARGV[2] == '1'

local me, command, database, max, ttl, theirs = identity(), ARGV[3], ARGV[4], ARGV[5], ARGV[6], ARGV[7]
local at, seen, failed = {}, {}, {}
local keys, args, try, sub, byte = KEYS, ARGV, redis.pcall, string.sub, string.byte

-- continue adds an entry to the epoch that the publisher knows, without looking at the stream, and
-- publishes it. nil: it is not the stream's epoch any more.
local function continue(key, epoch, entry)
  local id = try('XADD', key, 'MAXLEN', '~', max, epoch, 'e', entry)
  if type(id) ~= 'string' then return nil end
  if byte(id, -1) == 48 then -- a 0
    local tail = sub(id, -2)
    if tail == '-0' then -- the stream was deleted: numbers are lost, and count from 1
      redis.call('XDEL', key, id)
      at[key] = {epoch = math.max(now(), tonumber(string.match(id, '^%d+')) + 1), n = 0}
      return nil
    end
    if tail == '00' then redis.call('PEXPIRE', key, ttl) end
  end
  local heard = try(command, database .. key, id .. ' ' .. entry)
  if type(heard) == 'table' then
    failed[key] = '!' .. heard.err
    return failed[key]
  end
  return id
end

-- earlier returns the id of a message that was taken before, '?' if that cannot be known, or nil.
local function earlier(key, known, entry)
  local server, number = string.match(known, '^(%S*) (%d+)$')
  if not server then return nil end
  if server == me and held and tonumber(held) < tonumber(number) then return nil end
  if not seen[key] then
    seen[key] = {}
    for _, e in ipairs(redis.call('XRANGE', key, '-', '+')) do
      seen[key][string.match(e[2][2], '^%S+ (%S+)')] = e[1]
    end
  end
  return seen[key][string.match(entry, '^%S+ (%S+)')] or '?'
end

-- begun adds an entry where the stream stands, in a new epoch if there must be one.
local function begun(key, entry)
  at[key] = at[key] or open(key, me)
  if theirs ~= me then entry = me .. string.match(entry, '^%S+(.*)$') end
  return append(key, at[key], entry, command, database, max, ttl)
end

local out, continues = {}, not again and theirs == me
for i = 1, #keys - 1 do
  local key, known, entry = keys[i + 1], args[6 + 2 * i], args[7 + 2 * i]
  local done = again and earlier(key, known, entry) or nil
  done = done or failed[key] -- what follows one that failed must not overtake it
  if not done and continues and known ~= '' and not at[key] then
    done = continue(key, known, entry)
  end
  if not done then
    local ok, err = pcall(begun, key, entry)
    if ok then
      done = err
    else
      failed[key] = '!' .. (type(err) == 'table' and err.err or tostring(err))
      done = failed[key]
    end
  end
  out[i] = done
end
out[#keys] = me
return out
