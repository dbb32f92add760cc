-- Renews the lease of a node, and looks after others.
-- KEYS: leases, nodes that are being reaped, how many names nodes have, mark of this Redis, end of
--   a loss.
-- ARGV: node; lease in ms; 1 if the node had a lease in this life; for how long one that reaps has
--   a node to itself, in ms; 1 if its process had a lease in any life.
-- Returns {1, or 0 if the node was declared dead or forgotten; ms until the next lease runs out; a
--   node to be reaped, or ''; how many names the node has; the time in ms}.
-- A Redis that has lost all is known by its mark: a node that remembers a lease then says so for
-- the length of a lease, in which names are only given to those who had them.
local t = redis.call('TIME')
local now = tonumber(t[1]) * 1000 + math.floor(tonumber(t[2]) / 1000)
local node, lease, alive = ARGV[1], tonumber(ARGV[2]), 1
-- A script that has written is not refused when memory is full: a lease must not run out by that.
redis.call('ZREM', KEYS[1], '')
local marked = redis.call('SET', KEYS[4], '1', 'NX')
if marked and ARGV[5] == '1' then
  redis.call('SET', KEYS[5], string.format('%.0f', now + lease), 'PX', lease)
end
-- What ends later than if it began now is older than a step back of the clock.
local function bound(key, most)
  local ends = string.format('%.0f', now + most)
  for _, n in ipairs(redis.call('ZRANGEBYSCORE', key, '(' .. ends, '+inf', 'LIMIT', 0, 1000)) do
    redis.call('ZADD', key, ends, n)
  end
end
bound(KEYS[1], lease)
bound(KEYS[2], tonumber(ARGV[4]))
if tonumber(redis.call('GET', KEYS[5]) or 0) > now + lease then
  redis.call('SET', KEYS[5], string.format('%.0f', now + lease), 'PX', lease)
end
local forgotten = ARGV[3] == '1' and not redis.call('ZSCORE', KEYS[1], node)
if forgotten or redis.call('ZSCORE', KEYS[2], node) then
  alive = 0
  redis.call('ZADD', KEYS[2], string.format('%.0f', now), node) -- what was written in its name goes
else
  redis.call('ZADD', KEYS[1], string.format('%.0f', now + lease), node)
end
local function due(key, most) -- those whose time has come
  return redis.call('ZRANGEBYSCORE', key, '-inf', string.format('%.0f', now), 'LIMIT', 0, most)
end
for _, dead in ipairs(due(KEYS[1], 100)) do
  redis.call('ZREM', KEYS[1], dead)
  redis.call('ZADD', KEYS[2], string.format('%.0f', now), dead)
end
local reap = due(KEYS[2], 1)[1] or ''
if reap ~= '' then
  redis.call('ZADD', KEYS[2], string.format('%.0f', now + tonumber(ARGV[4])), reap)
end
local first = redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')
local names = tonumber(redis.call('HGET', KEYS[3], node) or 0)
return {alive, math.max(0, tonumber(first[2] or now) - now), reap, names, now}
