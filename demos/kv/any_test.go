package main

import (
	"slices"
	"strings"

	"github.com/loopwheel/loopwheel/demos/kv/store"
)

// names are the commands that randomAny takes.
var names = func() (names []string) {
	left := []string{"spop", "srandmember", "hrandfield", "zrandmember", "randomkey", "scan", "sscan", "hscan", "zscan", "memory", "object", "flushall", "flushdb", "copy"}
	store.All(func(c *store.Command) {
		if c.Flags&store.Blocking == 0 && !slices.Contains(left, c.Name) {
			names = append(names, c.Name)
		}
	})
	slices.Sort(names)
	return append(names, "ping", "echo", "select", "nosuch", "object", "pubsub", "config", "client", "unwatch", "exec", "discard")
}()

// timed are commands whose numbers may be times: none of those comes soon.
var timed = []string{"set", "getex", "setex", "psetex", "expire", "pexpire", "expireat", "pexpireat"}

// randomAny is a command with arguments that may be its own, or another's: what it says of them,
// and of which first, counts.
func randomAny(g generator) []string {
	name := g.pick(names...)
	args := []string{name}
	small := []string{"0", "1", "2", "-1", "3", "+1", "1.5", "01"}
	if slices.Contains(timed, name) {
		small = []string{"0", "-1", "1000000", "100000000000", "01", "1.5"}
	}
	key := func() string { return g.key(g.pick("s", "l", "h", "e", "z", "other")) }
	word := func() string {
		return g.anyCase(g.pick("NX", "XX", "GT", "LT", "CH", "INCR", "GET", "KEEPTTL", "EX", "PX", "PERSIST", "LIMIT", "COUNT", "MATCH", "RANK", "MAXLEN",
			"LEFT", "RIGHT", "MIN", "MAX", "WEIGHTS", "AGGREGATE", "SUM", "WITHSCORES", "BYSCORE", "BYLEX", "REV", "REPLACE", "LEN", "IDX", "MINMATCHLEN",
			"WITHMATCHLEN", "BEFORE", "AFTER", "STORE", "FREQ", "CHANNELS", "SETNAME", "GETNAME"))
	}
	for i := range g.IntN(8) {
		switch {
		case i == 0 && !g.oneIn(5), g.oneIn(4):
			args = append(args, key())
		case g.oneIn(2):
			args = append(args, g.pick(small...))
		case g.oneIn(2):
			args = append(args, word())
		case g.oneIn(20):
			args = append(args, g.pick("9223372036854775807", "-9223372036854775808", "x", "", "a\r\nb", "a\x00b", "(1", "[a", "-", "+", "inf", "nan"))
		case slices.Contains(timed, name):
			args = append(args, "member")
		default:
			args = append(args, g.member())
		}
	}
	return args
}

// randomTransaction is a command of MULTI, or one that may be in it.
func randomTransaction(g generator) []string {
	switch g.IntN(30) {
	case 0, 1, 2:
		return words("MULTI", g.rarely("x"))
	case 3, 4, 5:
		return words("EXEC", g.rarely("x"))
	case 6:
		return words("DISCARD", g.rarely("x"))
	case 7:
		return words("WATCH", g.key(g.pick("s", "l", "h", "e", "z", "x")))
	case 8:
		return words(g.pick("UNWATCH", "PING", "ECHO", "NOSUCH", "CLIENT", "OBJECT", "SELECT", "SUBSCRIBE"))
	}
	kinds := []func(generator) []string{randomString, randomList, randomHash, randomSet, randomZset, randomExpire, randomGeneric}
	args := kinds[g.IntN(len(kinds))](g)
	if strings.HasSuffix(args[0], "SCAN") || args[0] == "KEYS" || strings.HasSuffix(args[0], "TTL") || strings.HasSuffix(args[0], "EXPIRETIME") {
		return words("PING")
	}
	return g.spoil(args)
}

func (g generator) rarely(word string) []string {
	if g.oneIn(20) {
		return []string{word}
	}
	return nil
}
