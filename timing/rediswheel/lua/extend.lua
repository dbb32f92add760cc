-- Extends leases. ARGV: time or '', lease in ms, then of each batch: token, number of tasks, their
-- ids. A batch of which one is still held is extended. Returns a letter for each: h for held, s for
-- stale.
begin()
local now = clock(ARGV[1])
local letters, lease, i = '', string.format('%d', now + ARGV[2]), 3
while ARGV[i] do
  local token, n = ARGV[i], ARGV[i + 1] + 0
  local text = call('HGET', run, token)
  local some = string.rep(text and 'h' or 's', n)
  if text and not entire(text, table.concat(ARGV, '\n', i + 2, i + 1 + n)) then
    local o = batches().open(token, text)
    some = ''
    for k = i + 2, i + 1 + n do some = some .. (o.due[ARGV[k]] and 'h' or 's') end
  end
  if string.find(some, 'h', 1, true) then
    call('HSET', run, token, lease .. string.sub(text, string.find(text, '\n', 1, true), -1))
  end
  letters, i = letters .. some, i + 2 + n
end
return letters
