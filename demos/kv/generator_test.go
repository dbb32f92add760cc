package main

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A generator makes random commands on a few keys, so that they meet. Bad arguments are among them,
// options of the wrong kind, numbers at the end of their range, and bytes that are no text.
type generator struct {
	*rand.Rand
	now int64 // in Unix seconds, at the beginning
	n   int64 // how many times from now were made
}

func newGenerator(seed uint64) *generator {
	return &generator{Rand: rand.New(rand.NewPCG(seed, 0)), now: time.Now().Unix()}
}

func (g *generator) pick(of ...string) string { return of[g.IntN(len(of))] }

// oneIn reports true once in n times.
func (g *generator) oneIn(n int) bool { return g.IntN(n) == 0 }

func (g *generator) key() string {
	if g.oneIn(30) {
		return g.pick("", "\r\n", "\x00", "\xff\xfe", "{a}", "k\x001", "[a-c]", "k*", strings.Repeat("k", 300))
	}
	return "k" + strconv.Itoa(g.IntN(25))
}

// keys are some keys, of which one may be there twice, each with what more returns.
func (g *generator) keys(more func() []string) (out []string) {
	n := 1 + g.IntN(6)
	if g.oneIn(100) {
		n = 200
	}
	for range n {
		out = append(append(out, g.key()), more()...)
	}
	return out
}

func (g *generator) value() string {
	switch g.IntN(8) {
	case 0, 1, 2:
		return strconv.Itoa(g.IntN(1000) - 500)
	case 3:
		return g.number()
	case 4:
		return g.pick("", "\r\n", "a\x00b", "\xff\xfe", "$5\r\nhello\r\n", " 7", "7 ", "+7", "-0", "1e5", "0x10")
	case 5:
		return strings.Repeat("v", g.IntN(200))
	case 6:
		if g.oneIn(10) {
			return strings.Repeat("w", 1+g.IntN(100_000))
		}
	}
	return "text"
}

// number is one at the end of a range, or nearly a number.
func (g *generator) number() string {
	return g.pick("0", "1", "-1", "2", "100", "-7", "9223372036854775807", "-9223372036854775808", "9223372036854775808", "-9223372036854775809",
		"9223372036854775806", "9223372036854775", "-9223372036854775", "9223372036854776", "99999999999999999999", "18446744073709551616", "x", "", "01", "+1", "1.5",
		" 1", "1 ", "-", "--1", "1\x00", "\x00", "1e3", "1_0")
}

// far is a number that is no time in the near future, nor one that GT finds later each millisecond.
func (g *generator) far() string {
	for {
		if n := g.number(); !slices.Contains([]string{"1", "2", "100", "9223372036854775", "9223372036854776"}, n) {
			return n
		}
	}
}

// wait is a time from now in some unit, mostly far away: redis-server and this server have the time
// to reply before it comes. No two are closer than a minute, so that GT and LT say the same on
// both.
func (g *generator) wait(perSecond int64) string {
	if g.oneIn(5) {
		return g.far()
	}
	const prime = 100_003
	g.n++
	return strconv.FormatInt((100_000+60*(g.n*7919%prime))*perSecond, 10)
}

// at is a time since 1970, mostly far away, or over.
func (g *generator) at(perSecond int64) string {
	if g.oneIn(6) {
		return g.number()
	}
	if g.oneIn(6) {
		return strconv.FormatInt(1+g.Int64N(1_000_000), 10)
	}
	return strconv.FormatInt((g.now/1000*1000+10_000_000+1_000_000*g.Int64N(5))*perSecond+g.Int64N(perSecond), 10)
}

// times are options of SET and GETEX that say when a key expires.
func (g *generator) times() [][]string {
	return [][]string{{"EX", g.wait(1)}, {"PX", g.wait(1000)}, {"EXAT", g.at(1)}, {"PXAT", g.at(1000)}}
}

// options returns some of the options, in any order and case; also twice, cut off, or with
// something that is none.
func (g *generator) options(of ...[]string) (out []string) {
	for _, i := range g.Perm(len(of)) {
		for g.oneIn(len(of) + 1) {
			name := of[i][0]
			if g.oneIn(5) {
				name = g.pick(strings.ToLower(name), name[:1]+strings.ToLower(name[1:]), name+"\x00x")
			}
			out = append(append(out, name), of[i][1:]...)
		}
	}
	if g.oneIn(30) {
		out = append(out, g.pick("BAD", "", "1", "COUNT", "EX", "NX\r\n", "\xff"))
	}
	if g.oneIn(30) && len(out) > 0 {
		out = out[:len(out)-1]
	}
	return out
}

func (g *generator) pattern() (s string) {
	if g.oneIn(2) {
		return g.pick("*", "k*", "k?", "k[0-4]", "[^k]*", "k[4-0]*", "\\k1", "[", "[^", "[]", "k\\", "[k", "**", "*?*", "", "k1*1", "k[1\\-2]", "[\\\\-k]?")
	}
	for range g.IntN(6) {
		s += g.pick("*", "?", "[", "]", "^", "-", "\\", "k", "1", "2", "0-4", "[0-", "[^l]")
	}
	return s
}

// command returns a command, now and then a spoilt one: an argument too many or too few, or a bad
// one.
func (g *generator) command() []string {
	args := g.whole()
	if !g.oneIn(40) || strings.EqualFold(args[0], "SCAN") { // which would return some keys
		return args
	}
	i := g.IntN(len(args))
	switch g.IntN(4) {
	case 0:
		return args[:i+1]
	case 1:
		return append(args, g.far())
	case 2:
		args[i] = g.far()
	case 3:
		args[0] = g.pick("NOSUCH", "", "get\x00", "GETT", strings.Repeat("n", 200), "n\r\nm")
	}
	return args
}

func (g *generator) whole() []string {
	none := func() []string { return nil }
	conditions := [][]string{{"NX"}, {"XX"}, {"GT"}, {"LT"}}
	name := func(of ...string) string {
		s := g.pick(of...)
		if g.oneIn(4) {
			return strings.ToLower(s)
		}
		return s
	}
	words := func(first string, more ...string) []string { return append([]string{first}, more...) }
	switch g.IntN(26) {
	case 0, 1, 2, 3:
		return append(words(name("SET"), g.key(), g.value()), g.options(append(g.times(), []string{"NX"}, []string{"XX"}, []string{"GET"}, []string{"KEEPTTL"})...)...)
	case 4:
		return words(name("SET"), g.key(), strconv.Itoa(g.IntN(100)))
	case 5, 6:
		return words(name("GET", "GETDEL", "STRLEN", "TYPE"), g.key())
	case 7, 8:
		return append(words(name("GETEX"), g.key()), g.options(append(g.times(), []string{"PERSIST"})...)...)
	case 9:
		return append(words(name("MGET")), g.keys(none)...)
	case 10, 11:
		return append(words(name("MSET")), g.keys(func() []string { return []string{g.value()} })...)
	case 12:
		return append(words(name("DEL", "EXISTS")), g.keys(none)...)
	case 13:
		return words(name("APPEND"), g.key(), g.value())
	case 14, 15:
		return words(name("INCR", "DECR"), g.key())
	case 16, 17:
		return words(name("INCRBY", "DECRBY"), g.key(), g.number())
	case 18:
		return append(words(name("EXPIRE"), g.key(), g.wait(1)), g.options(conditions...)...)
	case 19:
		return append(words(name("PEXPIRE"), g.key(), g.wait(1000)), g.options(conditions...)...)
	case 20:
		return append(words(name("EXPIREAT"), g.key(), g.at(1)), g.options(conditions...)...)
	case 21:
		return append(words(name("PEXPIREAT"), g.key(), g.at(1000)), g.options(conditions...)...)
	case 22, 23:
		return words(name("TTL", "PTTL", "EXPIRETIME", "PERSIST"), g.key())
	case 24:
		return words(name("SCAN"), g.pick("x", "1x", " 1", "-", "+", "", "18446744073709551616", "0"), g.pick("COUNT", "MATCH", "BAD"), g.pick("0", "-1", "x", "", "1.5"), "x")
	}
	switch g.IntN(40) {
	case 0:
		return append(words(name("FLUSHALL")), g.options([]string{"SYNC"}, []string{"ASYNC"})...)
	case 1:
		return words(name("SELECT"), g.pick("0", "1", "-1", "x", "2147483648"))
	}
	return words(name("PING", "ECHO"), g.value())
}
