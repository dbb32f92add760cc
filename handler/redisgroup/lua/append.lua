-- append is shared by the scripts that write to a room's stream. A stream is log, counter and epoch
-- in one key: entry ids are epoch-number, and numbers count from 1 in each epoch. An entry has the
-- field e: "identity node:seq kind\ndata", by which server it was written and who published it. So it
-- is published behind its id, in the channel of that name, which has the number of the database
-- before it unless that is 0: databases share channels. One that is no message has the field p: the
-- id of the last message before it, or ''. Lua hashes each string that it makes, all bytes of it:
-- there are few.

-- identity tells this run of this server from all others: a replication id is made anew when a
-- server starts and when it is promoted, the two ways in which numbers that were handed out can be
-- lost again.
local function identity()
  local info = redis.pcall('INFO', 'replication')
  if type(info) ~= 'string' then return '-' end
  local _, at = string.find(info, 'master_replid:', 1, true)
  return at and string.sub(info, at + 1, at + 12) or '-'
end

-- now is a new epoch. In microseconds: a stream that is deleted as soon as it was begun is never
-- begun with the same numbers again.
local function now()
  local t = redis.call('TIME')
  return tonumber(t[1]) * 1000000 + tonumber(t[2])
end

-- open returns where a stream stands: epoch and number of the last entry, in an epoch that this
-- run of the server may continue, and the id of the last message.
local function open(key, me)
  local last = redis.call('XREVRANGE', key, '+', '-', 'COUNT', 1)[1]
  if not last then return {epoch = now(), n = 0, message = ''} end
  local e, n = string.match(last[1], '^(%d+)-(%d+)$')
  local at = {epoch = tonumber(e), n = tonumber(n), message = last[2][4] or last[1]}
  if string.match(last[2][2], '^%S+') ~= me then
    at.epoch, at.n = math.max(now(), at.epoch + 1), 0
  end
  return at
end

-- announce publishes an entry. The user may lack the right to: members miss it until they read.
local function announce(key, id, entry, command, database)
  redis.pcall(command, database .. key, id .. ' ' .. entry)
end

-- begin makes the first epoch of a stream that has no entries, with an entry that has the number 0 and
-- is no message: so nobody knows a room as empty, and who finds that entry gone has missed something.
-- Returns its id.
local function begin(key, command, database, ttl)
  local id, entry = string.format('%.0f-0', now()), identity() .. ' -:0 b\n'
  redis.call('XADD', key, id, 'e', entry, 'p', '')
  redis.call('PEXPIRE', key, ttl)
  announce(key, id, entry, command, database)
  return id
end

-- stands returns the id of a stream's last entry. A stream that has none is begun.
local function stands(key, command, database, ttl)
  local last = redis.call('XREVRANGE', key, '+', '-', 'COUNT', 1)[1]
  return last and last[1] or begin(key, command, database, ttl)
end

-- append adds an entry and publishes it. Exact trimming, and an expiry for each message, cost more
-- than they give: there is one for each script, as the publisher may have no member in the room that
-- has it kept.
local function append(key, at, entry, message, command, database, max, ttl)
  at.n = at.n + 1
  local id = string.format('%.0f-%.0f', at.epoch, at.n)
  if message then
    redis.call('XADD', key, 'MAXLEN', '~', max, id, 'e', entry)
    at.message = id
  else
    redis.call('XADD', key, 'MAXLEN', '~', max, id, 'e', entry, 'p', at.message)
  end
  if not at.kept then
    redis.call('PEXPIRE', key, ttl)
    at.kept = true
  end
  announce(key, id, entry, command, database)
  return id
end
