-- Reads for one who joins. KEYS: stream. ARGV: id of the last entry that it has, or ''; number of
-- messages, if that is ''; bytes at most; PUBLISH or SPUBLISH, database, length of a stream, its time
-- to live in ms. A stream without entries is begun.
-- Returns the id of the last entry of the stream; 1 if the bytes did not suffice, and the oldest are
-- missing; and the entries from that id on, or the last messages: id, entry, id, entry.
-- Entries that are no messages are passed over by their field p.
local since, room = ARGV[1] ~= '', tonumber(ARGV[3])
local from, want, size = since and ARGV[1] or '-', since and math.huge or tonumber(ARGV[2]), since and 100 or 16
local got, cut, to, last = {}, '0', '+', nil
while #got < want do
  local page, skip = redis.call('XREVRANGE', KEYS[1], to, from, 'COUNT', size), nil
  for _, e in ipairs(page) do
    last, to, skip = last or e[1], '(' .. e[1], e[2][4]
    if #got < want and (since or string.find(e[2][2], '^%S+ %S+ m\n')) then
      room = room - #e[2][2] - 32
      if room < 0 then
        cut, want = '1', 0
        break
      end
      got[#got + 1] = e
    end
  end
  if #page < size then break end
  if skip and not since then to = skip end
  if to == '' then break end
end
local out = {last or stands(KEYS[1], ARGV[4], ARGV[5], ARGV[7]), cut}
for i = #got, 1, -1 do out[#out + 1], out[#out + 2] = got[i][1], got[i][2][2] end
return out
