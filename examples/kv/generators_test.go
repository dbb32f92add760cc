package main

import (
	"strconv"
	"time"
)

// generators make a random command of each kind.
var generators = map[string]func(generator) []string{
	"string": randomString, "list": randomList, "hash": randomHash, "set": randomSet, "zset": randomZset,
	"generic": randomGeneric, "expire": randomExpire,
}

func randomString(g generator) []string {
	k := g.key("s")
	switch g.IntN(25) {
	case 0, 1, 2:
		return words("SET", k, g.value(), g.maybe(g.pick("NX", "XX", "GET", "KEEPTTL", "nx", "bad")), g.maybe(g.pick("EX", "PX"), g.pick("1000000", "100000000", "0", "-1", "x")), g.maybe("GET"))
	case 3:
		return words("GET", k)
	case 4:
		return words(g.pick("INCR", "DECR"), k)
	case 5:
		return words(g.pick("INCRBY", "DECRBY"), k, g.num())
	case 6:
		return words("INCRBYFLOAT", k, g.pick("0.1", "-1.5", "3", "1e5", "0.25", "x", "inf", "12345.678", "-0.1"))
	case 7:
		return words("APPEND", k, g.value())
	case 8:
		return words("STRLEN", k)
	case 9:
		return words("SETRANGE", k, g.pick("0", "1", "5", "30", "-1", "x", "600000000"), g.value())
	case 10:
		return words(g.pick("GETRANGE", "SUBSTR"), k, g.small(), g.small())
	case 11:
		return words("MGET", g.keys("s"))
	case 12:
		return words(g.pick("MSET", "MSETNX"), k, g.value(), g.key("s"), g.value(), g.maybe("odd"))
	case 13:
		return words("SETNX", k, g.value())
	case 14:
		return words("GETSET", k, g.value())
	case 15:
		return words("GETDEL", k)
	case 16:
		return words("GETEX", k, g.maybe(g.pick("PERSIST", "EX", "bad")), g.maybe("1000"))
	case 17:
		return words("SETEX", k, g.pick("1000", "0", "-5", "x"), g.value())
	case 18:
		return words("PSETEX", k, g.pick("1000000", "0", "x"), g.value())
	case 19:
		return words("SETBIT", k, g.pick("0", "7", "100", "-1", "4294967296", "x"), g.pick("0", "1", "2"))
	case 20:
		return words("GETBIT", k, g.pick("0", "7", "100", "-1", "x"))
	case 21:
		return words("LCS", k, g.key("s"), g.maybe(g.pick("LEN", "IDX")), g.maybe("MINMATCHLEN", g.small()), g.maybe("WITHMATCHLEN"))
	case 22:
		return words("DEL", g.keys("s"))
	case 23:
		return words(g.pick("GET", "SET", "APPEND", "INCR", "NOSUCH"), g.maybe(k))
	}
	return words("SET", k, strconv.Itoa(g.IntN(1000)))
}

func randomList(g generator) []string {
	k := g.key("l")
	side := func() string { return g.pick("LEFT", "RIGHT", "left", "UP") }
	switch g.IntN(20) {
	case 0, 1, 2:
		return words(g.pick("LPUSH", "RPUSH"), k, g.members())
	case 3:
		return words(g.pick("LPUSHX", "RPUSHX"), k, g.members())
	case 4, 5:
		return words(g.pick("LPOP", "RPOP"), k, g.maybe(g.small()))
	case 6:
		return words("LLEN", k)
	case 7:
		return words("LINDEX", k, g.small())
	case 8:
		return words("LINSERT", k, g.pick("BEFORE", "AFTER", "after", "AT"), g.member(), g.member())
	case 9, 10:
		return words("LRANGE", k, g.small(), g.small())
	case 11:
		return words("LREM", k, g.small(), g.member())
	case 12:
		return words("LSET", k, g.small(), g.member())
	case 13:
		return words("LTRIM", k, g.small(), g.pick(g.small(), "-1", "10"))
	case 14:
		return words("LPOS", k, g.member(), g.maybe("RANK", g.small()), g.maybe("COUNT", g.small()), g.maybe("MAXLEN", g.small()))
	case 15:
		return words("RPOPLPUSH", k, g.key("l"))
	case 16:
		return words("LMOVE", k, g.key("l"), side(), side())
	case 17:
		return words("LMPOP", g.numKeys("l"), side(), g.maybe("COUNT", g.small()))
	case 18:
		return words(g.pick("BLPOP", "BRPOP"), k, g.pick("-1", "x"))
	}
	return words("DEL", k)
}

func randomHash(g generator) []string {
	k := g.key("h")
	switch g.IntN(16) {
	case 0, 1, 2:
		return words(g.pick("HSET", "HMSET"), k, g.member(), g.value(), g.maybe(g.member(), g.value()), g.maybe("odd"))
	case 3:
		return words("HSETNX", k, g.member(), g.value())
	case 4:
		return words("HGET", k, g.member())
	case 5:
		return words("HMGET", k, g.members())
	case 6, 7:
		return words("HDEL", k, g.members())
	case 8:
		return words("HLEN", k)
	case 9:
		return words("HSTRLEN", k, g.member())
	case 10:
		return words("HEXISTS", k, g.member())
	case 11:
		return words(g.pick("HKEYS", "HVALS", "HGETALL"), k)
	case 12:
		return words("HINCRBY", k, g.member(), g.num())
	case 13:
		return words("HINCRBYFLOAT", k, g.member(), g.pick("0.1", "1.5", "-2", "x", "inf", "1e10"))
	case 14:
		return words("HRANDFIELD", "nosuchkey", g.maybe(g.small()))
	}
	return words("DEL", k)
}

func randomSet(g generator) []string {
	k := g.key("e")
	switch g.IntN(16) {
	case 0, 1, 2:
		return words("SADD", k, g.members())
	case 3, 4:
		return words("SREM", k, g.members())
	case 5:
		return words("SISMEMBER", k, g.member())
	case 6:
		return words("SMISMEMBER", k, g.members())
	case 7:
		return words("SMEMBERS", k)
	case 8:
		return words("SCARD", k)
	case 9:
		return words("SPOP", k, g.pick("1000", "0", "-1", "x"))
	case 10:
		return words("SRANDMEMBER", k, g.pick("1000", "0", "x"))
	case 11:
		return words("SMOVE", k, g.key("e"), g.member())
	case 12:
		return words(g.pick("SINTER", "SUNION", "SDIFF"), g.keys("e"))
	case 13:
		return words(g.pick("SINTERSTORE", "SUNIONSTORE", "SDIFFSTORE"), k, g.keys("e"))
	case 14:
		return words("SINTERCARD", g.numKeys("e"), g.maybe("LIMIT", g.small()))
	}
	return words("DEL", k)
}

func randomZset(g generator) []string {
	k := g.key("z")
	limit := func() []string { return g.maybe("LIMIT", g.small(), g.small()) }
	switch g.IntN(26) {
	case 0, 1, 2, 3:
		return words("ZADD", k, g.maybe(g.pick("NX", "XX", "GT", "LT", "CH", "INCR")), g.maybe(g.pick("XX", "CH", "INCR")), g.score(), g.member(), g.maybe(g.score(), g.member()))
	case 4:
		return words("ZINCRBY", k, g.score(), g.member())
	case 5:
		return words("ZREM", k, g.members())
	case 6:
		return words("ZCARD", k)
	case 7:
		return words("ZSCORE", k, g.member())
	case 8:
		return words("ZMSCORE", k, g.members())
	case 9:
		return words(g.pick("ZRANK", "ZREVRANK"), k, g.member())
	case 10, 11:
		return words("ZRANGE", k, g.small(), g.small(), g.maybe("REV"), g.maybe("WITHSCORES"), g.maybe(limit()...))
	case 12:
		return words("ZRANGE", k, g.bound(), g.bound(), "BYSCORE", g.maybe("REV"), limit(), g.maybe("WITHSCORES"))
	case 13:
		return words("ZREVRANGE", k, g.small(), g.small(), g.maybe("WITHSCORES"))
	case 14:
		return words(g.pick("ZRANGEBYSCORE", "ZREVRANGEBYSCORE"), k, g.bound(), g.bound(), g.maybe("WITHSCORES"), limit())
	case 15:
		return words("ZCOUNT", k, g.bound(), g.bound())
	case 16: // of a key whose scores are all the same: else the answer is not defined
		return words("ZADD", "lex", "0", g.member(), "0", g.member())
	case 17:
		return words(g.pick("ZRANGEBYLEX", "ZREVRANGEBYLEX"), "lex", g.lex(), g.lex(), limit())
	case 18:
		return words(g.pick("ZLEXCOUNT", "ZREMRANGEBYLEX"), "lex", g.lex(), g.lex())
	case 19:
		return words("ZREMRANGEBYRANK", k, g.small(), g.small())
	case 20:
		return words("ZREMRANGEBYSCORE", k, g.bound(), g.bound())
	case 21:
		return words(g.pick("ZPOPMIN", "ZPOPMAX"), k, g.maybe(g.small()))
	case 22:
		return words("ZMPOP", g.numKeys("z"), g.pick("MIN", "MAX", "MID"), g.maybe("COUNT", g.small()))
	case 23:
		return words(g.pick("ZUNIONSTORE", "ZINTERSTORE"), k, g.numKeys("z"), g.maybe("WEIGHTS", "2", "3"), g.maybe("AGGREGATE", g.pick("SUM", "MIN", "MAX", "AVG")))
	case 24:
		return words(g.pick("ZUNION", "ZINTER", "ZDIFF"), g.numKeys("z"), g.maybe("WITHSCORES"))
	}
	return words(g.pick("ZDIFFSTORE", "ZRANGESTORE"), k, g.pick("1", "z1"), g.pick("z2", "0"), g.maybe("5"))
}

func randomGeneric(g generator) []string {
	k := g.pick(g.key("s"), g.key("l"), g.key("h"), g.key("e"), g.key("z"))
	to := g.pick(g.key("s"), g.key("l"), g.key("h"), g.key("e"), g.key("z"))
	switch g.IntN(14) {
	case 0, 1, 2, 3:
		kinds := []func(generator) []string{randomString, randomList, randomHash, randomSet, randomZset}
		return kinds[g.IntN(len(kinds))](g)
	case 4:
		return words(g.pick("RENAME", "RENAMENX"), k, to)
	case 5:
		return words("COPY", k, to, g.maybe("REPLACE"))
	case 6:
		return words("TYPE", k)
	case 7:
		return words(g.pick("EXISTS", "TOUCH"), k, to)
	case 8:
		return words(g.pick("DEL", "UNLINK"), k)
	case 9:
		return words("KEYS", g.pick("*", "s*", "[sl]*", "?1", "[^s]*", "\\s1", "h[0-3]"))
	case 10:
		return words("DBSIZE")
	case 11:
		return words(g.pick("PERSIST", "TTL"), k)
	case 12:
		return words("EXPIRE", k, g.pick("1000", "x", "-1"), g.maybe(g.pick("NX", "XX", "bad")))
	}
	return words("SET", k, g.value())
}

// randomExpire makes keys that expire: in the past, or so far away that it does not come, as the
// clock of redis-server is its own. What happens between is another test's.
func randomExpire(g generator) []string {
	k := g.key("x")
	far := strconv.FormatInt(time.Now().Unix()/1000*1000+int64(10_000+1000*g.IntN(5)), 10)
	option := func() []string {
		return words(g.maybe(g.pick("NX", "XX", "GT", "LT", "gt")), g.maybe(g.pick("XX", "LT")))
	}
	switch g.IntN(14) {
	case 0, 1:
		return words("SET", k, g.value(), g.maybe(g.pick("KEEPTTL", "EXAT")), g.maybe(far))
	case 2:
		return words("EXPIREAT", k, g.pick(far, far, "1", "0", "-1", "9223372036854775807"), option())
	case 3:
		return words("PEXPIREAT", k, g.pick(far+"000", far+"500", "1", "9223372036854775807", "x"), option())
	case 4:
		return words("EXPIRE", k, g.pick("1000", "20000", "0", "-1", "9223372036854775807", "-9223372036854775808"))
	case 5:
		return words("PEXPIRE", k, g.pick("1000000", "20000000", "0", "9223372036854775807"))
	case 6:
		return words(g.pick("TTL", "PTTL", "EXPIRETIME", "PEXPIRETIME"), k)
	case 7:
		return words("PERSIST", k)
	case 8:
		return words("GETEX", k, g.pick("PERSIST", "EXAT", "PXAT", "EX"), g.maybe(far))
	case 9:
		return words("RENAME", k, g.key("x"))
	case 10:
		return words("COPY", k, g.key("x"), "REPLACE")
	case 11:
		return words("GETSET", k, g.value())
	case 12:
		return words("RPUSH", k, "a")
	}
	return words("APPEND", k, "a")
}
