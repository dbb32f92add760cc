-- Reads for one who joins. KEYS: stream, users. ARGV: id of the last entry that it has, or '';
-- number of messages, if that is ''; bytes at most; PUBLISH or SPUBLISH, database, length of a stream, its time to live
-- in ms. A stream without entries is begun.
-- Returns the id of the last entry of the stream; 1 if the bytes did not suffice, and the oldest are missing; the
-- number of users, and them; and the entries from that id on, or the last messages: id, entry, id, entry.
local room = tonumber(ARGV[3])
local got, cut, to, n = {}, '0', '+', 0
local want = ARGV[1] == '' and tonumber(ARGV[2]) or math.huge
local from = ARGV[1] == '' and '-' or ARGV[1]
local last
while n < want do
  local page = redis.call('XREVRANGE', KEYS[1], to, from, 'COUNT', 100)
  for _, e in ipairs(page) do
    last = last or e[1]
    local message = string.match(e[2][2], '^%S+ %S+ m\n') ~= nil
    if n < want and (message or ARGV[1] ~= '') then
      room = room - #e[2][2] - 32
      if room < 0 then cut = '1'; n = math.huge; break end
      got[#got + 1] = e
      n = n + 1
    end
    to = '(' .. e[1]
  end
  if #page < 100 or n == math.huge then break end
end
local users = redis.call('HKEYS', KEYS[2])
local out = {last or stands(KEYS[1], ARGV[4], ARGV[5], ARGV[7]), cut, tostring(#users)}
for _, user in ipairs(users) do out[#out + 1] = user end
for i = #got, 1, -1 do out[#out + 1], out[#out + 2] = got[i][1], got[i][2][2] end
return out
