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

-- forget drops all that there is of a task but its place in due, run or dead.
local function forget(id)
  call('HDEL', state, id)
  call('HDEL', body, id)
end

