-- A state is "cancelled attempts deliveries occurrence reason", of a task that was started before.
-- The hash state has those of tasks that wait or are dead; what runs has its state in its batch.
local function parse(s)
  local cancelled, attempts, deliveries, occurrence, reason = string.match(s, '^(%d) (%d+) (%d+) (%d+) (.*)$')
  return tonumber(cancelled), tonumber(attempts), tonumber(deliveries), occurrence, reason
end

local function format(cancelled, attempts, deliveries, occurrence, reason)
  return cancelled .. ' ' .. attempts .. ' ' .. deliveries .. ' ' .. occurrence .. ' ' .. reason
end

