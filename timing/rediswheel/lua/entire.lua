-- entire returns whether ids, with a newline between them, are all that is left of a batch, in its
-- order.
local function entire(text, ids)
  return string.find(text, '\n' .. ids .. '\n\n', 1, true) == string.find(text, '\n', 1, true)
end

