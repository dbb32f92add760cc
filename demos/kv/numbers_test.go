package main

import (
	"strconv"
	"strings"
	"testing"

	"github.com/loopwheel/loopwheel/codec/resp"
	"github.com/loopwheel/loopwheel/internal/seed"
)

const (
	notFloat = "(error) ERR value is not a valid float"
	notBound = "(error) ERR min or max is not a float"

	notFinite = "(error) ERR increment would produce NaN or Infinity"
)

// numbers says what texts mean as a double (ZSCORE after ZADD), as a long double (INCRBYFLOAT), and
// as the end of a range: how many of -inf, -1, 0, 1e-320, 1, 16, 1e300 and inf are not less.
var numbers = []struct{ text, double, long, bound string }{
	{"0", "0", "0", "6"},
	{"1", "1", "1", "4"},
	{"-1", "-1", "-1", "7"},
	{"+1", "1", "1", "4"},
	{"01", "1", "1", "4"},
	{"-0", "0", "0", "6"},
	{"+0", "0", "0", "6"},
	{"00", "0", "0", "6"},
	{"-00.0", "0", "0", "6"},
	{"1.", "1", "1", "4"},
	{"1.5", "1.5", "1.5", "3"},
	{".5", "0.5", "0.5", "4"},
	{"-.5", "-0.5", "-0.5", "6"},
	{"+.5", "0.5", "0.5", "4"},
	{".", notFloat, notFloat, notBound},
	{"-", notFloat, notFloat, notBound},
	{"+", notFloat, notFloat, notBound},
	{"", notFloat, notFloat, "6"},
	{"1e3", "1000", "1000", "2"},
	{"1E3", "1000", "1000", "2"},
	{"1e+3", "1000", "1000", "2"},
	{"1e-3", "0.001", "0.001", "4"},
	{"1e", notFloat, notFloat, notBound},
	{"1e+", notFloat, notFloat, notBound},
	{"e5", notFloat, notFloat, notBound},
	{"1e3.5", notFloat, notFloat, notBound},
	{"0x10", "16", "16", "3"},
	{"0X1F", "31", "31", "2"},
	{"-0x10", "-16", "-16", "7"},
	{"+0xa", "10", "10", "3"},
	{"0x1.8", "1.5", "1.5", "3"},
	{"0x.8", "0.5", "0.5", "4"},
	{"0x8.", "8", "8", "3"},
	{"0x1p4", "16", "16", "3"},
	{"0x1P-4", "0.0625", "0.0625", "4"},
	{"0x1p", notFloat, notFloat, notBound},
	{"0x1p+", notFloat, notFloat, notBound},
	{"0x1.8p3", "12", "12", "3"},
	{"0x", notFloat, notFloat, notBound},
	{"0x.", notFloat, notFloat, notBound},
	{"0xp1", notFloat, notFloat, notBound},
	{"0x.p1", notFloat, notFloat, notBound},
	{"0xg", notFloat, notFloat, notBound},
	{"0x1e5", "485", "485", "2"},
	{"x10", notFloat, notFloat, notBound},
	{"00x10", notFloat, notFloat, notBound},
	{"0x1p1023", "8.9884656743115795e+307", "89884656743115795386465259539451236680898848947115...308", "1"},
	{"0x1p1024", notFloat, "17976931348623159077293051907890247336179769789423...309", "1"},
	{"-0x1p1024", notFloat, "-1797693134862315907729305190789024733617976978942...310", "8"},
	{"0x1p-1074", "4.9406564584124654e-324", "0", "5"},
	{"0x1p-1075", notFloat, "0", "6"},
	{"0x1.8p-1075", "4.9406564584124654e-324", "0", "5"},
	{"0x1p-1080", notFloat, "0", "6"},
	{"0x1p16383", notFloat, "59486574767861588254287966331400356538172234354825...4932", "1"},
	{"0x1p16384", notFloat, notFloat, "1"},
	{"-0x1p16384", notFloat, notFloat, "8"},
	{"0x1p-16445", notFloat, "0", "6"},
	{"0x1p-16446", notFloat, notFloat, "6"},
	{"0x1.8p-16446", notFloat, "0", "6"},
	{"0x1.fffffffffffff7p1023", "1.7976931348623157e+308", "17976931348623157954632877794610353279470118706201...309", "1"},
	{"0x1.fffffffffffff8p1023", notFloat, "17976931348623158079372897140530341507993413271003...309", "1"},
	{"1_0", notFloat, notFloat, notBound},
	{"0x_1", notFloat, notFloat, notBound},
	{"0b1", notFloat, notFloat, notBound},
	{"0o7", notFloat, notFloat, notBound},
	{"010", "10", "10", "3"},
	{"1,5", notFloat, notFloat, notBound},
	{"1 5", notFloat, notFloat, notBound},
	{"1f", notFloat, notFloat, notBound},
	{"1L", notFloat, notFloat, notBound},
	{"inf", "inf", notFinite, "1"},
	{"-inf", "-inf", notFinite, "8"},
	{"+inf", "inf", notFinite, "1"},
	{"INF", "inf", notFinite, "1"},
	{"Infinity", "inf", notFinite, "1"},
	{"-INFINITY", "-inf", notFinite, "8"},
	{"infinit", notFloat, notFloat, notBound},
	{"infx", notFloat, notFloat, notBound},
	{"in", notFloat, notFloat, notBound},
	{"nan", notFloat, notFloat, notBound},
	{"-nan", notFloat, notFloat, notBound},
	{"NAN", notFloat, notFloat, notBound},
	{"nan(1)", notFloat, notFloat, notBound},
	{"1e308", "1e+308", "99999999999999999996685879655845645660560099847415...308", "1"},
	{"1.8e308", notFloat, "17999999999999999999988177178736216163722020915807...309", "1"},
	{"1e400", notFloat, "10000000000000000000281880683947586514586453433629...401", "1"},
	{"-1e400", notFloat, "-1000000000000000000028188068394758651458645343362...402", "8"},
	{"1e4931", notFloat, "10000000000000000000060189493879638913238377742545...4932", "1"},
	{"1.2e4932", notFloat, notFloat, "1"},
	{"1e5000", notFloat, notFloat, "1"},
	{"-1e5000", notFloat, notFloat, "8"},
	{"1e-320", "9.9998886718268301e-321", "0", "5"},
	{"4.9e-324", "4.9406564584124654e-324", "0", "5"},
	{"2e-324", notFloat, "0", "6"},
	{"1e-400", notFloat, "0", "6"},
	{"-1e-400", notFloat, "0", "6"},
	{"1e-4950", notFloat, "0", "6"},
	{"1e-5000", notFloat, notFloat, "6"},
	{"-1e-5000", notFloat, notFloat, "6"},
	{"0e9999", "0", "0", "6"},
	{"0x0p99999", "0", "0", "6"},
	{"1e99999999999999999999", notFloat, notFloat, "1"},
	{"1e-99999999999999999999", notFloat, notFloat, "6"},
	{"0e99999999999999999999", "0", "0", "6"},
	{" 1", notFloat, notFloat, "4"},
	{"\t1", notFloat, notFloat, "4"},
	{"\n1", notFloat, notFloat, "4"},
	{"\v1", notFloat, notFloat, "4"},
	{"\f1", notFloat, notFloat, "4"},
	{"\r1", notFloat, notFloat, "4"},
	{" -1", notFloat, notFloat, "7"},
	{" inf", notFloat, notFloat, "1"},
	{" ", notFloat, notFloat, notBound},
	{"\t", notFloat, notFloat, notBound},
	{"1 ", notFloat, notFloat, notBound},
	{"1\t", notFloat, notFloat, notBound},
	{"1\n", notFloat, notFloat, notBound},
	{"1\u00a0", notFloat, notFloat, notBound},
	{"\u00a01", notFloat, notFloat, notBound},
	{"\x00", notFloat, notFloat, "6"},
	{"1\x00", notFloat, notFloat, "4"},
	{"1\x002", notFloat, notFloat, "4"},
	{"\x001", notFloat, notFloat, "6"},
	{"- 1", notFloat, notFloat, notBound},
	{"-+1", notFloat, notFloat, notBound},
	{"--1", notFloat, notFloat, notBound},
	{"(", notFloat, notFloat, "5"},
	{"(1", notFloat, notFloat, "3"},
	{"( 1", notFloat, notFloat, "3"},
	{"(-inf", notFloat, notFloat, "7"},
	{"(inf", notFloat, notFloat, "0"},
	{"(x", notFloat, notFloat, notBound},
	{"((1", notFloat, notFloat, notBound},
	{"((", notFloat, notFloat, notBound},
	{"(1e400", notFloat, notFloat, "0"},
	{"(0x10", notFloat, notFloat, "2"},
	{"(1\x00x", notFloat, notFloat, "3"},
	{"[1", notFloat, notFloat, notBound},
	{"9007199254740993", "9007199254740992", "9007199254740993", "2"},
	{"9223372036854775807", "9.2233720368547758e+18", "9223372036854775807", "2"},
	{"9223372036854775808", "9.2233720368547758e+18", "9223372036854775808", "2"},
	{"18446744073709551617", "1.8446744073709552e+19", "18446744073709551616", "2"},
	{"0.1", "0.10000000000000001", "0.1", "4"},
	{"3.0000000000000000001", "3", "3", "3"},
	{"1e17", "1e+17", "100000000000000000", "2"},
	{"123456789012345678", "1.2345678901234568e+17", "123456789012345678", "2"},
	{"100000000000000000000", "1e+20", "100000000000000000000", "2"},
	{"1e22", "1e+22", "10000000000000000000000", "2"},
	{"1e23", "9.9999999999999992e+22", "100000000000000000000000", "2"},
	{"0.0001", "0.0001", "0.0001", "4"},
	{"0.00001", "1.0000000000000001e-05", "0.00001", "4"},
	{"1.0000000000000002", "1.0000000000000002", "1.0000000000000002", "3"},
	{"1.00000000000000005", "1", "1.00000000000000005", "4"},
	{"5e-18", "5.0000000000000004e-18", "0", "4"},
	{"4e-18", "4.0000000000000003e-18", "0", "4"},
	{"-5e-18", "-5.0000000000000004e-18", "0", "6"},
}

// TestNumbers: what a text means as a number. TestNumbersAsRedis has the same from redis-server.
func TestNumbers(t *testing.T) { checkNumbers(t, start(t)) }

func TestNumbersAsRedis(t *testing.T) { checkNumbers(t, redisServer(t)) }

func checkNumbers(t *testing.T, addr string) {
	c := dial(t, addr)
	c.want("ZADD bounds -inf a -1 b 0 c 1e-320 d 1 e 16 f 1e300 g inf h", "8")
	do := func(args ...string) string {
		c.sendArgs(args...)
		return text(c.read())
	}
	for _, n := range numbers {
		c.do("DEL z s")
		double := do("ZADD", "z", n.text, "m")
		if double == "1" {
			double = c.do("ZSCORE z m")
		}
		long := shorten(do("INCRBYFLOAT", "s", n.text))
		bound := do("ZCOUNT", "bounds", n.text, "+inf")
		if double != n.double || long != n.long || bound != n.bound {
			t.Errorf("{%q, %q, %q, %q},", n.text, double, long, bound)
		}
	}
}

// withNumber are commands with a number, in place of #.
var withNumber = []string{
	"ZADD z # m", "ZSCORE z m", "ZINCRBY z # m", "ZSCORE z m", "ZADD z INCR # m", "ZADD z XX GT CH # m", "ZADD z 5 m",
	"ZCOUNT bounds # +inf", "ZCOUNT bounds -inf #", "ZCOUNT bounds (# 16", "ZCOUNT bounds -1 (#", "ZRANGE bounds # # BYSCORE",
	"ZUNION 1 bounds WEIGHTS # WITHSCORES", "ZRANGE bounds # 3", "ZREVRANGE bounds 0 #", "ZRANGEBYSCORE bounds -inf inf LIMIT # 3",
	"ZRANGEBYSCORE bounds -inf inf LIMIT 1 #", "ZPOPMIN nosuch #", "ZRANDMEMBER nosuch #",
	"SET s #", "INCRBYFLOAT s 0", "SET s #", "INCRBYFLOAT s #", "DEL s", "INCRBYFLOAT s #", "INCRBYFLOAT s -1.5",
	"SET s #", "INCR s", "SET s #", "DECRBY s #", "DEL s", "INCRBY s #", "STRLEN s", "SET s text", "GETRANGE s # -1", "GETRANGE s 0 #",
	"SETBIT s # 1", "SETBIT s 3 #", "GETBIT s #", "SETRANGE s # a", "STRLEN s",
	"SET s v EX #", "SET s v PXAT #", "GETEX s EX #", "SETEX s # v", "PSETEX s # v", "SET s v", "EXPIRE s # NX", "SET s v", "PEXPIREAT s #", "EXISTS s",
	"LCS s s IDX MINMATCHLEN #",
	"HSET h f #", "HINCRBYFLOAT h f 1", "HINCRBYFLOAT h f #", "HSET h f #", "HINCRBY h f 3", "HINCRBY h f #", "HDEL h f", "HINCRBYFLOAT h f #",
	"HRANDFIELD nosuch # WITHVALUES", "HSCAN h # COUNT 100", "HSCAN h 0 COUNT #",
	"RPUSH l a b c", "LINDEX l #", "LSET l # x", "LRANGE l # 10", "LTRIM l 0 #", "LREM l # x", "LPOS l a RANK #", "LPOS l a COUNT #",
	"LPOS l a MAXLEN #", "LMPOP # l LEFT", "LMPOP 1 l LEFT COUNT #", "RPUSH l a b c", "LPOP l #", "RPUSH l a b c", "BLPOP l #", "BLMPOP # 1 l LEFT", "DEL l",
	"SADD e a", "SPOP e #", "SADD e a", "SRANDMEMBER nosuch #", "SINTERCARD # e", "SINTERCARD 1 e LIMIT #", "SSCAN nosuch #", "SSCAN z #", "ZINTERCARD 1 bounds LIMIT #",
	"ZUNION # bounds", "SELECT #", "SELECT 0", "COPY nosuch s DB #", "OBJECT FREQ nosuch #",
}

// TestEveryNumberAsRedis sends texts that are numbers, or nearly, to where commands have numbers.
func TestEveryNumberAsRedis(t *testing.T) {
	g := newGenerator(seed.Pick(t, 1), 1)
	a, b := dial(t, redisServer(t, "--databases", "1")), dial(t, start(t))
	texts := []string{strings.Repeat("1", 5118), strings.Repeat("1", 5119), strings.Repeat("1", 5120)}
	for _, n := range numbers {
		texts = append(texts, n.text)
	}
	for range commandsPerKind() / 4 / len(withNumber) {
		texts = append(texts, g.odd())
	}
	for _, c := range []*peer{a, b} {
		c.want("ZADD bounds -inf a -1 b 0 c 1e-320 d 1 e 16 f 1e300 g inf h", "8")
	}
	for _, text := range texts {
		var commands [][]string
		for _, line := range withNumber {
			args := strings.Fields(line)
			for i, arg := range args {
				args[i] = strings.Replace(arg, "#", text, 1)
			}
			commands = append(commands, args)
		}
		same(t, commands, a, b)
	}
}

// same sends commands to both, and wants the same answers.
func same(t *testing.T, commands [][]string, a, b *peer) {
	t.Helper()
	var wire []byte
	for _, args := range commands {
		wire = resp.AppendCommand(wire, args...)
	}
	a.write(wire)
	b.write(wire)
	for _, args := range commands {
		if want, got, same := nextReplies(t, args, a, b); !same && !known(args, want, got) {
			t.Errorf("%s: redis-server answers %s, this %s", short(args...), short(want), short(got))
		}
	}
}

// short shows the starts of texts.
func short(texts ...string) string {
	var out []string
	for _, s := range texts {
		out = append(out, strconv.Quote(shorten(s)))
	}
	return strings.Join(out, " ")
}

func shorten(s string) string {
	if len(s) > 60 && !strings.HasPrefix(s, "(error)") {
		return s[:50] + "..." + strconv.Itoa(len(s))
	}
	return s
}
