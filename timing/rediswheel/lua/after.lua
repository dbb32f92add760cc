-- after returns the first ms that has not begun, as a number, to say when something will be: so
-- nothing is early.
local function after(ms, us) return string.sub(us, -3) == '000' and ms + 0 or ms + 1 end

