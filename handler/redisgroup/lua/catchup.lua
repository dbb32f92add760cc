-- Reads what a room has missed. KEYS: stream. ARGV: id of the last entry that it has; entries at most; bytes, of which
-- the last entry may be beyond; PUBLISH or SPUBLISH, database, length of a stream, its time to live in ms. A stream
-- without entries is begun.
-- Returns {entries from that id on, id of the last one of the stream}.
local last, room = stands(KEYS[1], ARGV[4], ARGV[5], ARGV[7]), tonumber(ARGV[3])
local got = redis.call('XRANGE', KEYS[1], ARGV[1], '+', 'COUNT', ARGV[2])
for i = 2, #got do
  room = room - #got[i][2][2]
  if room < 0 then
    got[i + 1] = nil -- which ends the answer
    break
  end
end
return {got, last}
