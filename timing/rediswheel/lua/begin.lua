-- At maxmemory a script is refused at the first command that may need memory, unless it has written
-- before. Scripts that must work then, so that the queue can drain, begin with this.
local function begin() redis.call('HDEL', own, '') end

