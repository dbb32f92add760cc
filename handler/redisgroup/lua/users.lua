-- Reads a page of the users in a room. KEYS: stream, users. ARGV: cursor; PUBLISH or SPUBLISH,
-- database, length of a stream, its time to live in ms. A stream without entries is begun.
-- Returns the id of the last entry of the stream, the cursor of the next page, which is 0 after the
-- last one, and the users.
local page = redis.call('HSCAN', KEYS[2], ARGV[1], 'COUNT', 1000)
local out = {stands(KEYS[1], ARGV[2], ARGV[3], ARGV[5]), page[1]}
for i = 1, #page[2], 2 do out[#out + 1] = page[2][i] end
return out
