-- Forgets a node that was reaped, and frees its names.
-- KEYS: names, leases, the node's names, how many names nodes have, nodes that are being reaped.
-- ARGV: node.
for _, name in ipairs(redis.call('SMEMBERS', KEYS[3])) do
  local held = redis.call('HGET', KEYS[1], name)
  if held and string.match(held, '^%S+') == ARGV[1] then redis.call('HDEL', KEYS[1], name) end
end
redis.call('DEL', KEYS[3])
redis.call('HDEL', KEYS[4], ARGV[1])
redis.call('ZREM', KEYS[5], ARGV[1])
redis.call('ZREM', KEYS[2], ARGV[1])
return 1
