-- hint tells the shard's owner of something that is due before it would look again. That is within a
-- minute, the longest refresh.
local function hint(at, channel)
  local back = call('HGET', own, 'back')
  if back and at < tonumber(back) then
    local digits = string.format('%d', at)
    call('HSET', own, 'back', digits)
    call('PUBLISH', channel, digits)
  end
end

