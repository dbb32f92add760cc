-- Ends tasks that were done. ARGV: time or '', channel, then as done.lua says. Returns its letters.
local results, first = done(3)
if first then hint(first, ARGV[2]) end
return results
