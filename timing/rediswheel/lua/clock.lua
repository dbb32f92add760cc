-- clock returns the time in ms, rounded down to find out what is due and rounded up to say when
-- something will be, so that nothing is early; then seconds and microseconds as Redis has them.
-- Numbers are whole, and have 13 digits at most, as milliseconds do: Redis' Lua prints more than 14
-- with an exponent. What goes to Redis often is put into digits with %d, as numbers are slow there.
local function clock(told)
  if told ~= '' then
    local ms = tonumber(told)
    return ms, ms, math.floor(ms / 1000), ms % 1000 * 1000
  end
  local t = redis.call('TIME')
  local us = tonumber(t[2])
  local ms, over = t[1] * 1000 + us / 1000, us % 1000 / 1000
  if over == 0 then return ms, ms, t[1], us end
  ms = math.floor(ms)
  return ms, ms + 1, t[1], us
end

