package main

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/codec/resp"
	"github.com/loopwheel/loopwheel/internal/seed"
)

// unordered are commands whose answers have no order: the elements are sorted, in groups of this
// many.
var unordered = map[string]int{
	"SMEMBERS": 1, "SINTER": 1, "SUNION": 1, "SDIFF": 1, "HKEYS": 1, "HVALS": 1, "HGETALL": 2, "KEYS": 1, "SPOP": 1, "SRANDMEMBER": 1,
	"SCAN": 1, "SSCAN": 1, "HSCAN": 2, "ZSCAN": 2, "EXEC": 1,
}

// normal shows a reply in a form that can be compared.
func normal(args []string, v resp.Value) string {
	name := strings.ToUpper(args[0])
	group := unordered[name]
	if name == "EXEC" { // any commands
		for i, e := range v.Elems {
			if len(e.Elems) > 0 {
				v.Elems[i] = resp.Value{Kind: '+', Str: []byte(sorted(e, 1))}
			}
		}
	}
	if strings.HasSuffix(name, "SCAN") && len(v.Elems) == 2 {
		return text(v.Elems[0]) + sorted(v.Elems[1], group)
	}
	if name == "EXEC" || group == 0 {
		return text(v)
	}
	return string(v.Kind) + sorted(v, group)
}

func sorted(v resp.Value, group int) string {
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

// streams is how many times a kind of commands starts anew, with other random numbers: in RESP2 and
// RESP3 by turns.
const streams = 4

// TestSameAsRedis sends the same random commands to redis-server and to this program, and wants the
// same replies. Also what is there in the end is the same. LOOPWHEEL_SEED=random looks for more.
func TestSameAsRedis(t *testing.T) {
	redis := redisServer(t, "--databases", "1")
	kv := start(t)
	for i, kind := range slices.Sorted(maps.Keys(generators)) {
		t.Run(kind, func(t *testing.T) {
			start := seed.Pick(t, uint64(i))
			for stream := range uint64(streams) {
				g := newGenerator(start, stream)
				a, b := dial(t, redis), dial(t, kv)
				prepare(t, a, 2+int(stream%2))
				prepare(t, b, 2+int(stream%2))
				sent := compare(t, g, generators[kind], a, b, commandsPerKind()/streams)
				t.Logf("%d commands, %d keys in the end", sent, sameKeys(t, a, b))
			}
		})
	}
}

// More arguments than a million are fine: with a header that says so, and as many as that.
func TestMoreThanAMillionArguments(t *testing.T) {
	a, b := dial(t, redisServer(t)), dial(t, start(t))
	for _, name := range []string{"MSET", "EXISTS", "NOSUCH"} {
		args := []string{name}
		for i := range 1_100_000 {
			args = append(args, strconv.Itoa(i))
		}
		wire := resp.AppendCommand(nil, args...)
		a.write(wire)
		b.write(wire)
		if want, got, same := nextReplies(t, args[:1], a, b); !same {
			t.Errorf("%s: redis-server answers %s, this %s", name, short(want), short(got))
		}
	}
}

// commandsPerKind is how many random commands a test sends of each kind.
func commandsPerKind() int {
	if os.Getenv("LOOPWHEEL_SLOW") != "" {
		return 100_000
	}
	return 3000
}

// prepare removes what is there, and makes a key of each type but hashes for commands of others.
func prepare(t *testing.T, c *peer, version int) {
	t.Helper()
	for _, line := range []string{"HELLO " + strconv.Itoa(version), "FLUSHALL", "SET other0 text", "RPUSH other1 a b", "SADD other2 a b", "ZADD other3 1 a"} {
		if got := c.do(line); strings.HasPrefix(got, "(error)") {
			t.Fatal(line, got)
		}
	}
}

// compare sends n commands in batches.
func compare(t *testing.T, g generator, next func(generator) []string, a, b *peer, n int) (sent int) {
	const batch = 250         // what costs most is waiting for the two
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
			apart = max(apart, time.Since(began))
			if !same && !closeEnough(args, want, got, apart) && !known(args, want, got) {
				t.Errorf("%s: redis-server answers %s, this %s; before it: %s",
					short(args...), short(want), short(got), short(slices.Concat(commands[max(0, i-3):i]...)...))
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
	if want == got && unordered[strings.ToUpper(args[0])] == 0 { // in another form
		return string(x), string(y), false
	}
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
	}[strings.ToUpper(args[0])]
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
		a.sendArgs("TYPE", name)
		kind := text(a.read())
		read := map[string][]string{
			"string": {"GET", name}, "list": {"LRANGE", name, "0", "-1"}, "hash": {"HGETALL", name},
			"set": {"SMEMBERS", name}, "zset": {"ZRANGE", name, "0", "-1", "WITHSCORES"},
		}[kind]
		a.sendArgs(read...)
		b.sendArgs(read...)
		if x, y := normal(read, a.read()), normal(read, b.read()); x != y && !known(read, x, y) {
			t.Errorf("%q: %s in redis-server, %s here", read, x, y)
		}
	}
	return len(keysA.Elems)
}
