-- Reads what rooms have missed. KEYS: streams. ARGV: entries of a room at most, bytes at most, PUBLISH
-- or SPUBLISH, database, length of a stream, its time to live in ms; for each room the id of the last entry it has, '0-0' for
-- an empty stream. A stream without entries is begun.
-- Returns for each room that has something {place, entries, id of the last entry}, or {place} if it has to
-- ask again.
local count, room = tonumber(ARGV[1]), tonumber(ARGV[2])
local out = {}
for i, key in ipairs(KEYS) do
  local from = ARGV[6 + i]
  local got = room > 0 and redis.call('XRANGE', key, from, '+', 'COUNT', count)
  if not got then
    out[#out + 1] = {i}
  elseif not (#got == 1 and got[1][1] == from) then
    local last = stands(key, ARGV[3], ARGV[4], ARGV[6])
    if #got == 0 then got = redis.call('XRANGE', key, from, '+', 'COUNT', count) end -- it has begun
    if #got > 0 or from ~= '0-0' then
      out[#out + 1] = {i, got, last}
      for _, e in ipairs(got) do room = room - #e[2][2] end
    end
  end
end
return out
