-- hint tells the shard's owner of something that is due, in digits, before it would look again.
-- That is within a minute, the longest refresh. The channel is named as own.
local function hint(at)
  local back = call('HGET', own, 'back')
  if back and (#at < #back or #at == #back and at < back) then
    call('HSET', own, 'back', at)
    call('PUBLISH', own, at)
  end
end

