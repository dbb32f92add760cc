-- hint tells the shard's owner of something that is due before it would look again, which is within a
-- minute, the longest refresh.
local function hint(at, now, channel)
  if at > now + 60000 then return end
  local back = tonumber(call('HGET', own, 'back') or '')
  if back and at < back then
    call('HSET', own, 'back', at)
    call('PUBLISH', channel, at)
  end
end

