-- resume moves the states of tasks that start to where batches have them: it returns id and state in turns.
local function resume(ids)
  local states, moved = {}, {}
  for i, old in ipairs(call('HMGET', state, unpack(ids))) do
    if old then
      local _, attempts, deliveries, occurrence, reason = parse(old)
      states[#states + 1] = ids[i]
      states[#states + 1] = format(0, attempts, deliveries + 1, occurrence, reason)
      moved[#moved + 1] = ids[i]
    end
  end
  if #moved > 0 then call('HDEL', state, unpack(moved)) end
  return states
end

