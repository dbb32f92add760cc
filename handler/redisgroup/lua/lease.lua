-- Renews the lease of a node, and looks after others. KEYS: leases, nodes that are being reaped. ARGV:
-- node, lease in ms, 1 if the node had one before, for how long one that reaps has a node to itself.
-- Returns {1, or 0 if the node was declared dead; ms until the next lease runs out; a node to be
-- reaped, or ''}. A node that has run out is moved first, so that it cannot come back meanwhile.
local t = redis.call('TIME')
local now = tonumber(t[1]) * 1000 + math.floor(tonumber(t[2]) / 1000)
local alive = 1
if ARGV[3] == '1' and not redis.call('ZSCORE', KEYS[1], ARGV[1]) then
  alive = 0
else
  redis.call('ZADD', KEYS[1], string.format('%.0f', now + tonumber(ARGV[2])), ARGV[1])
end
for _, dead in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', string.format('%.0f', now), 'LIMIT', 0, 100)) do
  redis.call('ZREM', KEYS[1], dead)
  redis.call('ZADD', KEYS[2], string.format('%.0f', now), dead)
end
local claim = redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', string.format('%.0f', now), 'LIMIT', 0, 1)[1] or ''
if claim ~= '' then
  redis.call('ZADD', KEYS[2], string.format('%.0f', now + tonumber(ARGV[4])), claim)
end
local first = redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')
return {alive, math.max(0, tonumber(first[2] or now) - now), claim}
