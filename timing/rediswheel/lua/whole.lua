-- whole returns a score in digits. Redis says whole scores so; others may say 1.76e+12, as
-- miniredis does.
local function whole(score)
  return score and #score < 13 and string.format('%d', tonumber(score)) or score
end

