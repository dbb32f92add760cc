-- Claims a name for a node, or gives it back.
-- KEYS: names, leases, the node's names, how many names nodes have, the last token, end of a loss.
-- ARGV: claim, again for a name that the node had, release, or list; node; name; owner; token: of
--   the grant, or for claim the newest that the node has seen.
-- Returns the token of a grant, 1 if the name was given back, 0 if it is another's; list returns
-- the names that the node has: name, token, owner, name, token, owner. Or an error:
--   NOLEASE the node's lease has run out; STALE and a token: the name was granted to this owner
--   since the node has asked; LOST and ms: Redis has lost what it had, and those who had names come
--   first.
-- A name is "node token owner", and free if the lease of its node has run out. Its owner may claim
-- it from another node, too: a client that has lost its server.
local op, node, name, owner, token = ARGV[1], ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5])
local t = redis.call('TIME')
local us = tonumber(t[1]) * 1000000 + tonumber(t[2])
local function lives(n)
  return tonumber(redis.call('ZSCORE', KEYS[2], n) or 0) > math.floor(us / 1000)
end
-- holds returns the node that has a name, with the token of the grant and the owner; or nil.
local function holds(n)
  return string.match(redis.call('HGET', KEYS[1], n) or '', '^(%S+) (%d+) (.*)$')
end
if not lives(node) then return redis.error_reply('NOLEASE of ' .. node) end
if op == 'list' then
  local out = {}
  for _, has in ipairs(redis.call('SMEMBERS', KEYS[3])) do
    local holder, granted, whose = holds(has)
    if holder == node then
      out[#out + 1], out[#out + 2], out[#out + 3] = has, granted, whose
    else
      redis.call('SREM', KEYS[3], has)
    end
  end
  return out
end
local holder, has, whose = holds(name)
if op == 'release' then
  if holder ~= node then
    redis.call('SREM', KEYS[3], name)
    return 0
  end
  if tonumber(has) ~= token then return 0 end
  redis.call('HDEL', KEYS[1], name)
  redis.call('SREM', KEYS[3], name)
  redis.call('HINCRBY', KEYS[4], node, -1)
  return 1
end
if holder and whose ~= owner and lives(holder) then return 0 end
if holder and whose == owner and tonumber(has) > token then
  return redis.error_reply('STALE ' .. has)
end
local wait = tonumber(redis.call('GET', KEYS[6]) or 0) - math.floor(us / 1000)
if op == 'claim' and not holder and wait > 0 then
  return redis.error_reply(string.format('LOST %.0f', wait))
end
local last = tonumber(redis.call('GET', KEYS[5]) or 0)
local next = string.format('%.0f', math.max(us, last + 1, token + 1))
redis.call('SET', KEYS[5], next)
redis.call('HSET', KEYS[1], name, node .. ' ' .. next .. ' ' .. owner)
redis.call('SADD', KEYS[3], name)
if holder ~= node then
  redis.call('HINCRBY', KEYS[4], node, 1)
  if holder then redis.call('HINCRBY', KEYS[4], holder, -1) end
end
return tonumber(next)
