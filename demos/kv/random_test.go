package main

import (
	"math/rand/v2"
	"strconv"
	"strings"
)

// A generator makes random commands on a few keys, so that they meet.
type generator struct{ *rand.Rand }

func newGenerator(seed, stream uint64) generator {
	return generator{rand.New(rand.NewPCG(seed, stream))}
}

func (g generator) pick(of ...string) string { return of[g.IntN(len(of))] }

// oneIn reports true once in n times.
func (g generator) oneIn(n int) bool { return g.IntN(n) == 0 }

func (g generator) key(kind string) string {
	switch {
	case g.oneIn(40):
		return "other" + strconv.Itoa(g.IntN(4)) // of another type, now and then
	case g.oneIn(500):
		return kind + g.pick("", "\r\n", "\x00", "{}", strings.Repeat("k", 200))
	}
	return kind + strconv.Itoa(g.IntN(6))
}

func (g generator) num() string {
	if g.oneIn(20) {
		return g.odd()
	}
	return g.pick("0", "1", "-1", "2", "-2", "5", "-7", "100", "9223372036854775807", "-9223372036854775808", "x", "1.5", "", "01")
}

// float is what INCRBYFLOAT and the like take.
func (g generator) float() string {
	if g.oneIn(4) {
		return g.odd()
	}
	return g.pick("0.1", "-1.5", "3", "1e5", "0.25", "x", "inf", "12345.678", "-0.1", "1e17", "-1e-15", "0x1p-3", "3.0e3", "1e300")
}

// small is an index or a count.
func (g generator) small() string {
	if g.oneIn(50) {
		return g.bad()
	}
	return strconv.Itoa(g.IntN(14) - 5)
}

// bad is a wrong number, one at the end of a range, or no number: nothing that takes long or much.
func (g generator) bad() string {
	return g.pick("", "x", "-1", "0", "1", "2", "+1", "01", "-0", " 1", "1 ", "9223372036854775807", "-9223372036854775808", "9223372036854775808",
		"-9223372036854775807", "18446744073709551615", "1.5", "0x10", "inf", "nan", "(1", "[a", "-", "+", "1e400", "1e-400", "\x00", "1\x00")
}

func (g generator) value() string {
	switch g.IntN(16) {
	case 0, 1:
		return g.num()
	case 2, 3:
		return strings.Repeat(g.pick("a", "b"), g.IntN(40))
	case 4:
		return g.odd()
	case 5:
		return g.pick("", "\r\n", "a\x00b", "\xff\xfe", "0x", "12345678901234567890", "-0", "1e5", " 7", strings.Repeat("v", g.IntN(100)))
	case 6:
		if g.oneIn(10) {
			return strings.Repeat("w", 1+g.IntN(20_000))
		}
	}
	return strconv.Itoa(g.IntN(20))
}

func (g generator) member() string {
	switch {
	case g.oneIn(60):
		return g.pick("", "\x00", "\xff", "M1", "m1\n", strings.Repeat("m", 60+g.IntN(10)), strings.Repeat("n", 500), "1e3")
	case g.oneIn(10):
		return strconv.Itoa(g.IntN(8) - 2) // a set of numbers is stored in another way
	}
	return "m" + strconv.Itoa(g.IntN(12))
}

// score is a number, mostly one that sums of are exact.
func (g generator) score() string {
	if g.oneIn(30) {
		return g.odd()
	}
	return g.pick("0", "1", "2", "-3", "2.5", "-0.25", "1e3", "inf", "-inf", "nan", "x", "7", "7", "0.1", "1e17", "0x11")
}

func (g generator) bound() string { return g.pick("", "", "(") + g.score() }

func (g generator) lex() string {
	return g.pick("-", "+", "["+g.member(), "("+g.member(), "x", "", "[", "(", "-x", "+a")
}

func (g generator) members() (out []string) {
	n := 1 + g.IntN(4)
	if g.oneIn(100) {
		n = 150 // more than what is stored in a compact way
	}
	for range n {
		if out = append(out, g.member()); n > 100 {
			out[len(out)-1] += strconv.Itoa(g.IntN(300))
		}
	}
	return out
}

func (g generator) keys(kind string) (out []string) {
	for range 1 + g.IntN(3) {
		out = append(out, g.key(kind))
	}
	return out
}

// numKeys is a number of keys, and the keys.
func (g generator) numKeys(kind string) []string {
	keys := g.keys(kind)
	n := strconv.Itoa(len(keys))
	if g.oneIn(20) {
		n = g.pick("-1", "0", "1", "2", "3", "4", g.bad())
	}
	return append([]string{n}, keys...)
}

// maybe returns the words, or nothing.
func (g generator) maybe(words ...string) []string {
	if g.IntN(3) > 0 {
		return nil
	}
	return words
}

// options returns some of the options, each of several words, in any order and case; also twice,
// cut off, or with something that is none.
func (g generator) options(of ...[]string) (out []string) {
	for _, i := range g.Perm(len(of)) {
		for g.oneIn(3) {
			out = append(out, g.anyCase(of[i][0]))
			out = append(out, of[i][1:]...)
		}
	}
	if g.oneIn(30) {
		out = append(out, g.pick("BAD", "", "1", "COUNT", "LIMIT", "EX"))
	}
	if g.oneIn(30) && len(out) > 0 {
		out = out[:len(out)-1]
	}
	return out
}

func (g generator) anyCase(s string) string {
	if g.oneIn(5) {
		return g.pick(strings.ToLower(s), strings.ToUpper(s[:1])+strings.ToLower(s[1:]))
	}
	return s
}

func option(words ...string) []string { return words }

func words(parts ...any) (out []string) {
	for _, p := range parts {
		switch p := p.(type) {
		case string:
			out = append(out, p)
		case []string:
			out = append(out, p...)
		}
	}
	return out
}

// spoil changes a command a little, now and then: an argument too many or too few, one of another
// place, a wrong number, a key of another type.
func (g generator) spoil(args []string) []string {
	if !g.oneIn(40) || unspoilt[strings.ToUpper(args[0])] || len(args) > 1 && args[1] == "lex" {
		return args
	}
	if len(args) == 1 {
		return append(args, g.bad())
	}
	i := 1 + g.IntN(len(args)-1)
	switch g.IntN(6) {
	case 0:
		args = args[:len(args)-1]
	case 1:
		args = append(args, g.bad())
	case 2:
		args = append(args, args[i])
	case 3:
		args[1] = g.key(g.pick("s", "l", "h", "e", "z"))
	case 4:
		args[i] = g.bad()
	case 5:
		args[0] = g.anyCase(args[0])
	}
	return args
}

// unspoilt are commands that would answer something random, or wait.
var unspoilt = map[string]bool{
	"SPOP": true, "SRANDMEMBER": true, "HRANDFIELD": true, "ZRANDMEMBER": true, "RANDOMKEY": true, "BLPOP": true, "BRPOP": true,
	"SCAN": true, "SSCAN": true, "HSCAN": true, "ZSCAN": true, "SET": true, "GETEX": true, "SETEX": true, "PSETEX": true,
	"EXPIRE": true, "PEXPIRE": true, "OBJECT": true,
}

// odd is a number, or nearly one.
func (g generator) odd() string {
	digits := func(of string, n int) (s string) {
		for range g.IntN(n) {
			s += string(of[g.IntN(len(of))])
		}
		return s
	}
	const decimal, hex = "0123456789", "0123456789abcdefABCDEF"
	switch g.IntN(12) {
	case 0:
		return g.pick("inf", "-inf", "+inf", "Infinity", "-INFINITY", "nan", "-nan", "nan(1)", "infinit", "in", "infx", "NaN")
	case 1:
		return g.pick("9223372036854775807", "9223372036854775808", "-9223372036854775808", "-9223372036854775809", "18446744073709551615",
			"18446744073709551616", "4294967295", "4294967296", "2147483647", "2147483648", "-2147483648", "-2147483649", "4611686018427387904",
			"4611686018427387903", "-4611686018427387904", "9223372036854775", "9223372036854776", "1073741823", "-1073741824", "1099511627776")
	case 2:
		return g.pick("", " ", "\t", "\x00", "(", "((1", "-", "+", "--1", "+-1", ".", "e5", "0x", "0X", "0x.", "0xp1", "1_0", "0b1", "0o7", "1,5", "١")
	case 3:
		return g.pick("", "-", "+") + strconv.FormatUint(g.Uint64()>>g.IntN(64), 10)
	case 4: // what is close to another double, or in the middle between two
		x := strconv.FormatFloat(float64(g.Uint64()>>g.IntN(64)), 'f', -1, 64)
		return x + g.pick("", ".5", ".25", ".000000000000000000000000000000000000000000000001", "e300", "e-330", "e-15")
	}
	s := g.pick("", "", "-", "+")
	if g.IntN(3) == 0 {
		s += g.pick("0x", "0X") + digits(hex, 20) + g.pick("", "", ".", "."+digits(hex, 20))
		s += g.pick("", "", "p", "P-", "p+") + digits(decimal, 7)
	} else {
		s += digits(decimal, 25) + g.pick("", ".", "."+digits(decimal, 25))
		s += g.pick("", "", "e", "E-", "e+") + digits(decimal, 6)
	}
	if g.IntN(15) == 0 {
		s = g.pick(" ", "\t", "\n", "\v", "\f", "\r", "\x00", "\u00a0", "0", "000000") + s
	}
	if g.IntN(15) == 0 {
		s += g.pick(" ", "\t", "\n", "\v", "\f", "\r", "\x00", "\x00x", "f", "L", "_", "0", strings.Repeat("0", 30))
	}
	return s
}
