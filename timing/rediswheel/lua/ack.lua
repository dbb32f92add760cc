-- Ends tasks that were done. ARGV: as done.lua says. Returns its letters.
local results, first = done(1)
if first then hint(first) end
return results
