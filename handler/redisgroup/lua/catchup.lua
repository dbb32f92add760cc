-- Reads what rooms have missed. KEYS: streams. ARGV: entries of a room at most, bytes at most, PUBLISH
-- or SPUBLISH, database, length of a stream, its time to live in ms; for each room the id of the last entry it has, '0-0' for
-- an empty stream, '' to be told where it stands. A stream without entries is begun.
-- Returns {place, 'at', id}, {place, 'got', entries, id of the last entry} or {place, 'later'} for
-- each room that has something.
local count, room = tonumber(ARGV[1]), tonumber(ARGV[2])

-- stands returns the id of a stream's last entry.
local function stands(key)
  local last = redis.call('XREVRANGE', key, '+', '-', 'COUNT', 1)[1]
  return last and last[1] or begin(key, ARGV[3], ARGV[4], ARGV[6])
end

local out = {}
for i, key in ipairs(KEYS) do
  local from = ARGV[6 + i]
  if room <= 0 then
    out[#out + 1] = {i, 'later'}
  elseif from == '' then
    out[#out + 1] = {i, 'at', stands(key)}
  else
    local got = redis.call('XRANGE', key, from, '+', 'COUNT', count)
    if not (#got == 1 and got[1][1] == from) then
      local last = stands(key)
      if #got == 0 then got = redis.call('XRANGE', key, from, '+', 'COUNT', count) end -- it has begun
      if #got > 0 or from ~= '0-0' then
        out[#out + 1] = {i, 'got', got, last}
        for _, e in ipairs(got) do room = room - #e[2][2] end
      end
    end
  end
end
return out
