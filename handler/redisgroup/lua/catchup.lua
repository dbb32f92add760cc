-- Reads what a room has missed. KEYS: stream. ARGV: id of the last entry that it has; entries at most; bytes, of which
-- the last entry may be beyond; PUBLISH or SPUBLISH, database, length of a stream, its time to live in ms. A stream
-- without entries is begun.
-- Returns what history.lua does: the id of the last entry of the stream, and entries from that id on.
local out, room = {stands(KEYS[1], ARGV[4], ARGV[5], ARGV[7]), '0'}, tonumber(ARGV[3])
for _, e in ipairs(redis.call('XRANGE', KEYS[1], ARGV[1], '+', 'COUNT', ARGV[2])) do
  if room < 0 then break end
  out[#out + 1], out[#out + 2] = e[1], e[2][2]
  if e[1] ~= ARGV[1] then room = room - #e[2][2] end
end
return out
