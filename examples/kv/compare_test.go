package main

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/codec/resp"
)

// A generator makes random commands on a few keys, so that they meet.
type generator struct{ *rand.Rand }

func (g generator) pick(of ...string) string { return of[g.IntN(len(of))] }

func (g generator) key(kind string) string {
	if g.IntN(40) == 0 {
		return "other" + strconv.Itoa(g.IntN(4)) // of another type, now and then
	}
	return kind + strconv.Itoa(g.IntN(6))
}

func (g generator) num() string {
	return g.pick("0", "1", "-1", "2", "-2", "5", "-7", "100", "9223372036854775807", "-9223372036854775808", "x", "1.5", "", "01")
}

// small is an index or a count.
func (g generator) small() string { return strconv.Itoa(g.IntN(14) - 5) }

func (g generator) value() string {
	switch g.IntN(6) {
	case 0:
		return g.num()
	case 1:
		return strings.Repeat(g.pick("a", "b"), g.IntN(40))
	}
	return strconv.Itoa(g.IntN(20))
}

func (g generator) member() string { return "m" + strconv.Itoa(g.IntN(12)) }

// score is a number that sums of are exact.
func (g generator) score() string {
	return g.pick("0", "1", "2", "-3", "2.5", "-0.25", "1e3", "inf", "-inf", "nan", "x", "7", "7")
}

func (g generator) bound() string { return g.pick("", "", "(") + g.score() }

func (g generator) lex() string {
	return g.pick("-", "+", "["+g.member(), "("+g.member(), "x")
}

func (g generator) members() (out []string) {
	for range 1 + g.IntN(4) {
		out = append(out, g.member())
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
	n := len(keys)
	if g.IntN(20) == 0 {
		n = g.IntN(4) - 1
	}
	return append([]string{strconv.Itoa(n)}, keys...)
}

// maybe returns the words, or nothing.
func (g generator) maybe(words ...string) []string {
	if g.IntN(3) > 0 {
		return nil
	}
	return words
}

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

// unordered are commands whose answers have no order: the elements are sorted, in groups of this
// many.
var unordered = map[string]int{
	"SMEMBERS": 1, "SINTER": 1, "SUNION": 1, "SDIFF": 1, "HKEYS": 1, "HVALS": 1, "HGETALL": 2, "KEYS": 1, "SPOP": 1, "SRANDMEMBER": 1,
}

// normal shows a reply in a form that can be compared.
func normal(args []string, v resp.Value) string {
	group := unordered[strings.ToUpper(args[0])]
	if group == 0 || len(v.Elems) == 0 || len(v.Elems)%group != 0 {
		return text(v)
	}
	var parts []string
	for g := range slices.Chunk(v.Elems, group) {
		s := ""
		for _, e := range g {
			s += text(e) + " "
		}
		parts = append(parts, s)
	}
	slices.Sort(parts)
	return fmt.Sprint(parts)
}

// TestSameAsRedis sends the same random commands to redis-server and to this program, and wants the
// same replies. Also what is there in the end is the same.
func TestSameAsRedis(t *testing.T) {
	n := 3000
	if os.Getenv("LOOPWHEEL_SLOW") != "" {
		n = 100_000
	}
	redis := redisServer(t)
	kv := start(t)
	for _, kind := range []string{"string", "list", "hash", "set", "zset", "generic", "expire"} {
		t.Run(kind, func(t *testing.T) {
			seed := uint64(time.Now().UnixNano())
			g := generator{rand.New(rand.NewPCG(seed, 1))}
			a, b := dial(t, redis), dial(t, kv)
			for _, c := range []*peer{a, b} {
				c.do("FLUSHALL")
				for i, line := range []string{"SET other0 text", "RPUSH other1 a b", "SADD other2 a b", "ZADD other3 1 a"} {
					if got := c.do(line); strings.HasPrefix(got, "(error)") {
						t.Fatal(i, got)
					}
				}
			}
			sent := compare(t, g, generators[kind], a, b, n)
			if t.Failed() {
				t.Logf("seed %d", seed)
			}
			t.Logf("%d commands, %d keys in the end", sent, sameKeys(t, a, b))
		})
	}
}

// compare sends n commands in batches.
func compare(t *testing.T, g generator, next func(generator) []string, a, b *peer, n int) (sent int) {
	const batch = 1000        // what costs most is waiting for the two
	apart := time.Duration(0) // how far at most, at one command: both are between a write and the last answer
	for sent < n && !t.Failed() {
		var commands [][]string
		var wire []byte
		for range batch {
			args := next(g)
			commands = append(commands, args)
			wire = resp.AppendCommand(wire, args...)
		}
		began := time.Now()
		a.write(wire)
		b.write(wire)
		for i, args := range commands {
			want, got, same := nextReplies(t, args, a, b)
			if apart = max(apart, time.Since(began)); !same && !closeEnough(args, want, got, apart) {
				t.Errorf("%q: redis-server answers %s, this %s; before it: %q", args, want, got, commands[max(0, i-3):i])
			}
		}
		sent += batch
	}
	return sent
}

// nextReplies reports whether both answer the same. Nearly always they do, byte for byte.
func nextReplies(t *testing.T, args []string, a, b *peer) (want, got string, same bool) {
	t.Helper()
	x, err := a.readRaw()
	if err != nil {
		t.Fatalf("%q: redis-server: %v", args, err)
	}
	y, err := b.readRaw()
	if err != nil {
		t.Fatalf("%q: %v", args, err)
	}
	if bytes.Equal(x, y) {
		return "", "", true
	}
	wantValue, err1 := resp.Parse(x)
	gotValue, err2 := resp.Parse(y)
	if err1 != nil || err2 != nil {
		t.Fatalf("%q: redis-server answers %q (%v), this %q (%v)", args, x, err1, y, err2)
	}
	want, got = normal(args, wantValue), normal(args, gotValue)
	return want, got, want == got
}

// closeEnough reports whether the two answers are times that are left or over, which the moment of
// asking changes, and that of setting them, before.
func closeEnough(args []string, a, b string, apart time.Duration) bool {
	x, err1 := strconv.ParseInt(a, 10, 64)
	y, err2 := strconv.ParseInt(b, 10, 64)
	if err1 != nil || err2 != nil || x < 0 || y < 0 {
		return false
	}
	unit, ok := map[string]time.Duration{
		"TTL": time.Second, "EXPIRETIME": time.Second, "PTTL": time.Millisecond, "PEXPIRETIME": time.Millisecond,
	}[args[0]]
	return ok && max(x-y, y-x) <= int64((time.Second+2*apart)/unit)
}

// sameKeys compares all keys that are left.
func sameKeys(t *testing.T, a, b *peer) int {
	t.Helper()
	a.send("KEYS *")
	b.send("KEYS *")
	keysA, keysB := a.read(), b.read()
	if x, y := normal([]string{"KEYS"}, keysA), normal([]string{"KEYS"}, keysB); x != y {
		t.Errorf("the keys of redis-server are %s, here %s", x, y)
	}
	for _, key := range keysA.Elems {
		name := string(key.Str)
		read := map[string][]string{
			"string": {"GET", name}, "list": {"LRANGE", name, "0", "-1"}, "hash": {"HGETALL", name},
			"set": {"SMEMBERS", name}, "zset": {"ZRANGE", name, "0", "-1", "WITHSCORES"},
		}[a.do("TYPE "+name)]
		a.sendArgs(read...)
		b.sendArgs(read...)
		if x, y := normal(read, a.read()), normal(read, b.read()); x != y {
			t.Errorf("%q: %s in redis-server, %s here", read, x, y)
		}
	}
	return len(keysA.Elems)
}
