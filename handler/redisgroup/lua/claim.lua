-- Claims and releases names. KEYS: names, leases, the node's names, nodes that are being reaped,
-- fence. ARGV: claim, release or bury; node; name; owner; number of this command, which is larger
-- than of those before; 1 if one about the name was not answered: it may still be on its way, and
-- is void. Returns 1 if that was done, 0 if the name is another's. A name is free if the lease of
-- its node is gone or has run out. Its owner may claim it again from another node: a client that
-- has lost its server.
local op, node, name = ARGV[1], ARGV[2], ARGV[3]
if op == 'bury' then -- the node was reaped: nothing of it is left
  for _, n in ipairs(redis.call('SMEMBERS', KEYS[3])) do
    local v = redis.call('HGET', KEYS[1], n)
    if v and string.match(v, '^%S+') == node then redis.call('HDEL', KEYS[1], n) end
  end
  redis.call('DEL', KEYS[3])
  redis.call('ZREM', KEYS[4], node)
  redis.call('ZREM', KEYS[2], node)
  return 1
end
local fence = redis.call('GET', KEYS[5])
if fence and tonumber(fence) > tonumber(ARGV[5]) then
  return redis.error_reply('STALE a later command was here')
end
if ARGV[6] == '1' then redis.call('SET', KEYS[5], ARGV[5], 'PX', 3600000) end
local mine, held = node .. ' ' .. ARGV[4], redis.call('HGET', KEYS[1], name)
if op == 'release' then
  if held ~= mine then return 0 end
  redis.call('HDEL', KEYS[1], name)
  redis.call('SREM', KEYS[3], name)
  return 1
end
if held and string.match(held, '^%S+ (.*)$') ~= ARGV[4] then
  local t = redis.call('TIME')
  local now = tonumber(t[1]) * 1000 + math.floor(tonumber(t[2]) / 1000)
  local lease = redis.call('ZSCORE', KEYS[2], string.match(held, '^%S+'))
  if lease and tonumber(lease) > now then return 0 end
end
redis.call('HSET', KEYS[1], name, mine)
redis.call('SADD', KEYS[3], name)
return 1
