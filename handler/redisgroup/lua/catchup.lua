-- Reads what rooms have missed. KEYS: streams. ARGV: entries of a room at most, bytes at most; for
-- each room the id of the last entry it has, '0-0' for an empty stream, '' to be told where it stands.
-- Returns {place, 'at', id}, {place, 'got', entries, id of the last entry} or {place, 'later'} for
-- each room that has something.
local count, room = tonumber(ARGV[1]), tonumber(ARGV[2])
local out = {}
for i, key in ipairs(KEYS) do
  local from = ARGV[2 + i]
  if room <= 0 then
    out[#out + 1] = {i, 'later'}
  elseif from == '' then
    local last = redis.call('XREVRANGE', key, '+', '-', 'COUNT', 1)[1]
    out[#out + 1] = {i, 'at', last and last[1] or '0-0'}
  else
    local got = redis.call('XRANGE', key, from, '+', 'COUNT', count)
    if not (#got == 1 and got[1][1] == from) and not (#got == 0 and from == '0-0') then
      local last = redis.call('XREVRANGE', key, '+', '-', 'COUNT', 1)[1]
      out[#out + 1] = {i, 'got', got, last and last[1] or '0-0'}
      for _, e in ipairs(got) do room = room - #e[2][4] end
    end
  end
end
return out
