-- Adds users of a node to a room, and removes them. KEYS: fence, the node's members of the room, the
-- room's users, stream, the node's rooms, the node's tombstone,
-- and but in a cluster, where they are in another slot, the leases. ARGV: number of this command, which is larger
-- than of those before, 1 if it repeats one, PUBLISH or SPUBLISH, database,
-- length of a stream, its time to live in ms, name of
-- the room, the node; then for each change + or -, the user, and who says so (node:seq).
-- Each change may be made again without effect. Only the first and the last of a user are events.
local held = redis.call('GET', KEYS[1])
if held and tonumber(held) > tonumber(ARGV[1]) then
  return redis.error_reply('STALE a later command was here')
end
if redis.call('EXISTS', KEYS[6]) == 1 then return 'DEAD' end
if KEYS[7] then
  local t = redis.call('TIME')
  local lease = tonumber(redis.call('ZSCORE', KEYS[7], ARGV[8]) or 0)
  if lease <= tonumber(t[1]) * 1000 + math.floor(tonumber(t[2]) / 1000) then
    return redis.error_reply('NOLEASE of ' .. ARGV[8])
  end
end
if ARGV[2] == '1' then redis.call('SET', KEYS[1], ARGV[1], 'PX', 3600000) end
local me, at = identity(), nil
local function event(from, kind, user)
  at = at or open(KEYS[4], me)
  append(KEYS[4], at, me .. ' ' .. from .. ' ' .. kind .. '\n' .. user, ARGV[3], ARGV[4], ARGV[5], ARGV[6])
end
for i = 9, #ARGV, 3 do
  local op, user, from = ARGV[i], ARGV[i + 1], ARGV[i + 2]
  if op == '+' then
    if redis.call('SADD', KEYS[2], user) == 1 then
      redis.call('SADD', KEYS[5], ARGV[7])
      if redis.call('HINCRBY', KEYS[3], user, 1) == 1 then event(from, 'j', user) end
    end
  elseif redis.call('SREM', KEYS[2], user) == 1 then
    if redis.call('HINCRBY', KEYS[3], user, -1) <= 0 then
      redis.call('HDEL', KEYS[3], user)
      event(from, 'l', user)
    end
  end
end
if redis.call('EXISTS', KEYS[2]) == 0 then redis.call('SREM', KEYS[5], ARGV[7]) end
return 'OK'
