-- resume moves the states of tasks that start to where their batch has them, which it returns.
local function resume(ids)
  local states, moved = {}, {}
  for i, old in ipairs(call('HMGET', state, unpack(ids))) do
    if old then
      local _, attempts, deliveries, occurrence, reason = parse(old)
      states[#states + 1] = ids[i] .. '\n' .. format(0, attempts, deliveries + 1, occurrence, reason)
      moved[#moved + 1] = ids[i]
    end
  end
  if #moved > 0 then call('HDEL', state, unpack(moved)) end
  return table.concat(states, '\n')
end

