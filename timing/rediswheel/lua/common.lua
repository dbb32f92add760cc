-- Put before each script. A shard is six keys, which all scripts get in this order.
local due, run, state, body, own, dead = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]

-- Numbers are whole, and have 13 digits at most, as milliseconds do: Redis' Lua prints more than 14 with an exponent.

-- clock returns the time in ms, rounded down to find out what is due and rounded up to say when
-- something will be, so that nothing is early; then seconds and microseconds as Redis has them.
local function clock(told)
  if told ~= '' then
    local ms = tonumber(told)
    return ms, ms, math.floor(ms / 1000), ms % 1000 * 1000
  end
  local t = redis.call('TIME')
  local ms = tonumber(t[1]) * 1000
  return ms + math.floor(t[2] / 1000), ms + math.ceil(t[2] / 1000), t[1], t[2]
end

-- A state is "token cancelled attempts deliveries occurrence reason". The token is 0 unless the task is
-- running. A task that was never started has no state.
local function parse(s)
  if not s then return 0, 0, 0, 0, 0, '' end
  local token, cancelled, attempts, deliveries, occurrence, reason =
    string.match(s, '^(%d+) (%d) (%d+) (%d+) (%d+) (.*)$')
  return tonumber(token), tonumber(cancelled), tonumber(attempts), tonumber(deliveries),
    tonumber(occurrence), reason
end

local function format(token, cancelled, attempts, deliveries, occurrence, reason)
  return token .. ' ' .. cancelled .. ' ' .. attempts .. ' ' .. deliveries .. ' ' .. occurrence .. ' ' .. reason
end

-- At maxmemory a script is refused at the first command that may need memory, unless it has written
-- before. Scripts that must work then, so that the queue can drain, begin with this.
local function begin() redis.call('HDEL', own, '') end

-- hint tells the shard's owner of something that is due before it would look again.
local function hint(at, channel, shard)
  local back = tonumber(redis.call('HGET', own, 'back') or '')
  if back and at < back then
    redis.call('HSET', own, 'back', at)
    redis.call('PUBLISH', channel, 'due ' .. shard .. ' ' .. at)
  end
end

-- forget drops all that there is of a task but its place in due, run or dead.
local function forget(id)
  redis.call('HDEL', state, id)
  redis.call('HDEL', body, id)
end
