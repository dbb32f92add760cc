-- clock returns the time in digits: in ms, rounded down, to find out what is due; and in µs; then
-- seconds and microseconds as Redis has them. Digits rather than numbers, as numbers are slow here:
-- each way between them takes about as long as a look into a hash. Those with as many digits are
-- compared as strings. Numbers have 16 digits at most and are put into digits with %d: Redis' Lua
-- prints more than 14 with an exponent.
local function clock(told)
  if told ~= '' then return told, told .. '000', string.sub(told, 1, -4), string.sub(told, -3) .. '000' end
  local t = redis.call('TIME')
  local us = string.sub('00000' .. t[2], -6)
  return t[1] .. string.sub(us, 1, 3), t[1] .. us, t[1], t[2]
end

