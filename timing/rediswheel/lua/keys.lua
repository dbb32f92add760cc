-- Put before each script of a shard, which gets its six keys in this order.
local due, run, state, body, own, dead = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local call = redis.call

