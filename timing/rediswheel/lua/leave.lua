-- Gives a shard up, if it is the worker's still. ARGV: worker, channel, message.
begin()
if call('HGET', own, 'worker') == ARGV[1] then
  call('HDEL', own, 'worker', 'until', 'back')
  call('PUBLISH', ARGV[2], ARGV[3])
end
return 1
