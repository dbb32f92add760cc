-- Removes users of a dead node from a room, some at a time. KEYS: the node's members of the room, the
-- room's users, stream, the node's rooms. ARGV: PUBLISH or SPUBLISH, database, length of a stream, its time to
-- live in ms, name of the room, who reaps (node:seq), users at most. Returns how many are left.
local me, at = identity(), nil
for _, user in ipairs(redis.call('SPOP', KEYS[1], ARGV[7])) do
  if redis.call('HINCRBY', KEYS[2], user, -1) <= 0 then
    redis.call('HDEL', KEYS[2], user)
    at = at or open(KEYS[3], me)
    append(KEYS[3], at, me .. ' ' .. ARGV[6] .. ' l\n' .. user, false, ARGV[1], ARGV[2], ARGV[3], ARGV[4])
  end
end
local left = redis.call('SCARD', KEYS[1])
if left == 0 then redis.call('SREM', KEYS[4], ARGV[5]) end
return left
