-- clock returns the time in ms, rounded down to find out what is due and rounded up to say when
-- something will be, so that nothing is early; then seconds and microseconds as Redis has them.
-- Numbers are whole, and have 13 digits at most, as milliseconds do: Redis' Lua prints more than 14 with an exponent.
local function clock(told)
  if told ~= '' then
    local ms = tonumber(told)
    return ms, ms, math.floor(ms / 1000), ms % 1000 * 1000
  end
  local t = redis.call('TIME')
  local ms = t[1] * 1000
  return ms + math.floor(t[2] / 1000), ms + math.ceil(t[2] / 1000), t[1], t[2]
end

