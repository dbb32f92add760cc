package main

import (
	"strconv"
	"time"
)

// generators make a random command of each kind.
var generators = map[string]func(generator) []string{
	"string": spoilt(randomString), "list": spoilt(randomList), "hash": spoilt(randomHash), "set": spoilt(randomSet),
	"zset": spoilt(randomZset), "generic": spoilt(randomGeneric), "expire": spoilt(randomExpire), "float": spoilt(randomFloat),
	"any": randomAny, "transaction": randomTransaction,
}

func spoilt(random func(generator) []string) func(generator) []string {
	return func(g generator) []string { return g.spoil(random(g)) }
}

func randomString(g generator) []string {
	k := g.key("s")
	far := func() string {
		return g.pick("1000000", "100000000", "100000000", "0", "-1", "x", "9223372036854775807")
	}
	at := func() string {
		return g.pick("9100000000", "9200000000", "9200000000", "0", "-1", "x", "9223372036854775807")
	}
	switch g.IntN(27) {
	case 0, 1, 2:
		return words("SET", k, g.value(), g.options(option("NX"), option("XX"), option("GET"), option("KEEPTTL"),
			option("EX", far()), option("PX", far()), option("EXAT", at()), option("PXAT", at()+"000")))
	case 3:
		return words("GET", k)
	case 4:
		return words(g.pick("INCR", "DECR"), k)
	case 5:
		return words(g.pick("INCRBY", "DECRBY"), k, g.num())
	case 6:
		return words("INCRBYFLOAT", k, g.float())
	case 7:
		return words("APPEND", k, g.value())
	case 8:
		return words("STRLEN", k)
	case 9:
		return words("SETRANGE", k, g.pick("0", "1", "2", "5", "30", "-1", "x", "600000000", "536870912", g.bad()), g.pick(g.value(), g.num(), ""))
	case 10:
		return words(g.pick("GETRANGE", "SUBSTR"), k, g.small(), g.pick(g.small(), g.num()))
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
		return words("GETEX", k, g.options(option("PERSIST"), option("EX", far()), option("PX", far()), option("EXAT", at())))
	case 17:
		return words("SETEX", k, far(), g.value())
	case 18:
		return words("PSETEX", k, far(), g.value())
	case 19:
		return words("SETBIT", k, g.pick("0", "7", "100", "-1", "4294967296", "x", g.bad()), g.pick("0", "1", "2", g.bad()))
	case 20:
		return words("GETBIT", k, g.pick("0", "7", "100", "-1", "4294967295", "4294967296", "x", g.bad()))
	case 21:
		return words("LCS", k, g.key("s"), g.options(option("LEN"), option("IDX"), option("MINMATCHLEN", g.small()), option("WITHMATCHLEN")))
	case 22:
		return words("DEL", g.keys("s"))
	case 23:
		return words(g.pick("GET", "SET", "APPEND", "INCR", "NOSUCH"), g.maybe(k))
	case 24: // numbers that are made of parts
		return words("APPEND", k, g.pick("0", "1", "9", ".", ".5", "e1", "e-2", "x1f", "a", "p3", " ", "\x00"))
	}
	return words("SET", k, g.pick(strconv.Itoa(g.IntN(1000)), g.num(), "0"))
}

// randomFloat is about numbers with decimals, wherever they are.
func randomFloat(g generator) []string {
	switch g.IntN(12) {
	case 0, 1:
		return words("INCRBYFLOAT", g.key("s"), g.float())
	case 2:
		return words("SET", g.key("s"), g.float())
	case 3, 4:
		return words("HINCRBYFLOAT", g.key("h"), g.member(), g.float())
	case 5:
		return words("HSET", g.key("h"), g.member(), g.float())
	case 6, 7:
		return words("ZINCRBY", g.key("z"), g.float(), g.member())
	case 8:
		return words("ZADD", g.key("z"), g.float(), g.member(), g.float(), g.member())
	case 9:
		return words("ZRANGEBYSCORE", g.key("z"), g.pick("", "(")+g.odd(), g.pick("", "(")+g.float(), g.maybe("WITHSCORES"))
	case 10:
		return words(g.pick("ZUNION", "ZINTER"), "2", g.key("z"), g.key("z"), "WEIGHTS", g.float(), g.float(), g.maybe("WITHSCORES"))
	}
	return words("DEL", g.key(g.pick("s", "h", "z")))
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
		return words("LINSERT", k, g.pick("BEFORE", "AFTER", "after", "AT"), g.member(), g.pick(g.member(), g.value()))
	case 9, 10:
		return words("LRANGE", k, g.small(), g.small())
	case 11:
		return words("LREM", k, g.small(), g.member())
	case 12:
		return words("LSET", k, g.small(), g.pick(g.member(), g.value()))
	case 13:
		return words("LTRIM", k, g.small(), g.pick(g.small(), "-1", "10"))
	case 14:
		return words("LPOS", k, g.member(), g.options(option("RANK", g.small()), option("COUNT", g.small()), option("MAXLEN", g.small())))
	case 15:
		return words("RPOPLPUSH", k, g.key("l"))
	case 16:
		return words("LMOVE", k, g.key("l"), side(), side())
	case 17:
		return words("LMPOP", g.numKeys("l"), side(), g.options(option("COUNT", g.small())))
	case 18:
		return words(g.pick("BLPOP", "BRPOP"), k, g.pick("-1", "x"))
	}
	return words("DEL", k)
}

func randomHash(g generator) []string {
	k := g.key("h")
	switch g.IntN(17) {
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
		return words("HINCRBYFLOAT", k, g.member(), g.float())
	case 14:
		return words("HRANDFIELD", "nosuchkey", g.maybe(g.small()), g.maybe(g.pick("WITHVALUES", "withvalues", "WITHSCORES")))
	case 15:
		return words("HSCAN", k, g.pick("0", "", "x", " 0"), "COUNT", "100000", g.scanOptions())
	}
	return words("DEL", k)
}

// scanOptions are some that do not cut an answer short.
func (g generator) scanOptions() []string {
	return g.options(option("MATCH", g.pick("*", "m*", "m?", "[^m]*", "m1")), option("COUNT", g.pick("100000", "0", "-1", "x")), option("TYPE", g.pick("string", "list", "LIST", "none")))
}

func randomSet(g generator) []string {
	k := g.key("e")
	switch g.IntN(17) {
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
		return words("SINTERCARD", g.numKeys("e"), g.options(option("LIMIT", g.small())))
	case 15:
		return words("SSCAN", k, g.pick("0", "", "x", " 0"), "COUNT", "100000", g.scanOptions())
	}
	return words("DEL", k)
}

func randomZset(g generator) []string {
	k := g.key("z")
	limit := func() []string { return option("LIMIT", g.small(), g.small()) }
	weights := func() []string { return option("WEIGHTS", g.score(), g.score()) }
	aggregate := func() []string { return option("AGGREGATE", g.pick("SUM", "MIN", "MAX", "AVG", "sum")) }
	switch g.IntN(28) {
	case 0, 1, 2, 3:
		return words("ZADD", k, g.options(option("NX"), option("XX"), option("GT"), option("LT"), option("CH"), option("INCR")),
			g.score(), g.member(), g.maybe(g.score(), g.member()))
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
		return words("ZRANGE", k, g.small(), g.small(), g.options(option("REV"), option("WITHSCORES"), limit()))
	case 12:
		return words("ZRANGE", k, g.bound(), g.bound(), "BYSCORE", g.options(option("REV"), option("WITHSCORES"), limit()))
	case 13:
		return words("ZREVRANGE", k, g.small(), g.small(), g.maybe("WITHSCORES"))
	case 14:
		return words(g.pick("ZRANGEBYSCORE", "ZREVRANGEBYSCORE"), k, g.bound(), g.bound(), g.options(option("WITHSCORES"), limit()))
	case 15:
		return words("ZCOUNT", k, g.bound(), g.bound())
	case 16: // of a key whose scores are all the same: else the answer is not defined
		return words("ZADD", "lex", "0", g.member(), "0", g.member())
	case 17:
		return words(g.pick("ZRANGEBYLEX", "ZREVRANGEBYLEX"), "lex", g.lex(), g.lex(), g.options(limit()))
	case 18:
		return words(g.pick("ZLEXCOUNT", "ZREMRANGEBYLEX"), "lex", g.lex(), g.lex())
	case 19:
		return words("ZREMRANGEBYRANK", k, g.small(), g.small())
	case 20:
		return words("ZREMRANGEBYSCORE", k, g.bound(), g.bound())
	case 21:
		return words(g.pick("ZPOPMIN", "ZPOPMAX"), k, g.maybe(g.small()))
	case 22:
		return words("ZMPOP", g.numKeys("z"), g.pick("MIN", "MAX", "MID"), g.options(option("COUNT", g.small())))
	case 23:
		return words(g.pick("ZUNIONSTORE", "ZINTERSTORE"), k, g.numKeys(g.pick("z", "z", "e")), g.options(weights(), aggregate(), option("WITHSCORES")))
	case 24:
		return words(g.pick("ZUNION", "ZINTER", "ZDIFF"), g.numKeys("z"), g.options(option("WITHSCORES"), weights(), aggregate()))
	case 25:
		return words("ZINTERCARD", g.numKeys("z"), g.options(option("LIMIT", g.small())))
	case 26:
		return g.zstore(k)
	}
	return words(g.pick("DEL", "ZCARD", "ZCARD"), k)
}

// zstore stores what is made of other sorted sets, or walks through one, or makes a large one.
func (g generator) zstore(k string) []string {
	switch g.IntN(4) {
	case 0:
		return words("ZDIFFSTORE", k, g.numKeys("z"))
	case 1:
		return words("ZRANGESTORE", k, g.key("z"), g.bound(), g.bound(), g.options(option("BYSCORE"), option("REV"), option("LIMIT", g.small(), g.small())))
	case 2:
		return words("ZSCAN", k, "0", "COUNT", "100000", g.scanOptions())
	}
	args := words("ZADD", k)
	for range 1 + g.IntN(200) {
		args = append(args, strconv.Itoa(g.IntN(30)), g.member()+strconv.Itoa(g.IntN(100)))
	}
	return args
}

func randomGeneric(g generator) []string {
	anyKey := func() string { return g.key(g.pick("s", "l", "h", "e", "z")) }
	k, to := anyKey(), anyKey()
	switch g.IntN(16) {
	case 0, 1, 2, 3:
		kinds := []func(generator) []string{randomString, randomList, randomHash, randomSet, randomZset}
		return kinds[g.IntN(len(kinds))](g)
	case 4:
		return words(g.pick("RENAME", "RENAMENX"), k, to)
	case 5:
		return words("COPY", k, to, g.options(option("REPLACE"), option("DB", g.pick("0", "0", "x", "-1", "99"))))
	case 6:
		return words("TYPE", k)
	case 7:
		return words(g.pick("EXISTS", "TOUCH"), k, to)
	case 8:
		return words(g.pick("DEL", "UNLINK"), k)
	case 9:
		return words("KEYS", g.pattern())
	case 10:
		return words("DBSIZE")
	case 11:
		return words(g.pick("PERSIST", "TTL"), k)
	case 12:
		return words("EXPIRE", k, g.pick("1000", "x", "-1"), g.options(option("NX"), option("XX"), option("LT", "GT")))
	case 13:
		return words("SCAN", "0", "COUNT", "100000", g.scanOptions())
	case 14:
		return words(g.pick("OBJECT", "object"), g.pick("REFCOUNT", "FREQ", "ENCODING", "BAD", "freq"), "nosuch", g.maybe("x"))
	}
	return words("SET", k, g.value())
}

// pattern is one of KEYS.
func (g generator) pattern() (s string) {
	if g.oneIn(2) {
		return g.pick("*", "s*", "[sl]*", "?1", "[^s]*", "\\s1", "h[0-3]", "s[3-0]", "[", "[^", "s\\", "[s", "**", "*?*", "")
	}
	for range g.IntN(6) {
		s += g.pick("*", "?", "[", "]", "^", "-", "\\", "s", "l", "1", "3", "a-z", "[s-", "[^l]")
	}
	return s
}

// randomExpire makes keys that expire: in the past, or so far away that it does not come, as the
// clock of redis-server is its own. What happens between is another test's.
func randomExpire(g generator) []string {
	k := g.key("x")
	far := strconv.FormatInt(time.Now().Unix()/1000*1000+int64(10_000+1000*g.IntN(5)), 10)
	some := func() []string { return g.options(option("NX"), option("XX"), option("GT"), option("LT")) }
	// As their clocks differ, GT is not for times from now: not by itself, which GT LT may be cut off
	// to.
	few := func() []string { return g.options(option("NX"), option("XX"), option("LT", "GT")) }
	switch g.IntN(14) {
	case 0, 1:
		return words("SET", k, g.value(), g.maybe(g.pick("KEEPTTL", "EXAT")), g.maybe(far))
	case 2:
		return words("EXPIREAT", k, g.pick(far, far, "1", "0", "-1", "9223372036854775807"), some())
	case 3:
		return words("PEXPIREAT", k, g.pick(far+"000", far+"500", "1", "9223372036854775807", "x"), some())
	case 4:
		return words("EXPIRE", k, g.pick("1000", "20000", "0", "-1", "9223372036854775807", "-9223372036854775808", "9223372036854775", "9223370000000000", "-9223372036854775"), few())
	case 5:
		return words("PEXPIRE", k, g.pick("1000000", "20000000", "0", "9223372036854775807", "9223370000000000000", "-9223372036854775808"), few())
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
