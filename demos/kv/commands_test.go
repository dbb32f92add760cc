package main

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"net"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/redis/go-redis/v9"

	"github.com/loopwheel/loopwheel/internal/testkit"
)

const (
	syntax = "-ERR syntax error\r\n"
	notInt = "-ERR value is not an integer or out of range\r\n"
)

// Each line of a dialogue is a command and its reply. Those of redis-server are compared by
// TestSameAsRedis; here is what can be seen without one.
var dialogues = [][]string{
	{"PING", "+PONG\r\n", "ping hi", "$2\r\nhi\r\n", "ECHO hi", "$2\r\nhi\r\n", "ECHO", "-ERR wrong number of arguments for 'echo' command\r\n"},
	{"COMMAND", "*0\r\n", "COMMAND DOCS", "*0\r\n", "SELECT 0", replyOK, "SELECT 1", "-ERR DB index is out of range\r\n"},
	{"HELLO 3", "-NOPROTO unsupported protocol version\r\n", "NOSUCH a b", "-ERR unknown command 'NOSUCH', with args beginning with: 'a' 'b' \r\n"},
	{"SET a 1", replyOK, "GET a", "$1\r\n1\r\n", "TYPE a", "+string\r\n", "TYPE b", "+none\r\n", "STRLEN a", one, "STRLEN b", zero},
	{"SET a 1 NX", replyOK, "SET a 2 NX", null, "SET a 3 XX GET", "$1\r\n1\r\n", "SET b 1 XX", null, "SET b 1 GET", null, "SET a 1 NX XX", syntax},
	{"SET a 1 EX 0", "-ERR invalid expire time in 'set' command\r\n", "SET a 1 EX x", notInt, "SET a 1 EX", syntax, "SET a 1 EX 1 PX 1", syntax},
	{"SET a 1 EX 9223372036854775807", "-ERR invalid expire time in 'set' command\r\n", "SET a 1 EX 1 KEEPTTL", syntax, "GET a", null},
	{"SET a 1 EX 100", replyOK, "TTL a", ":100\r\n", "PTTL a", ":100000\r\n", "EXPIRETIME a", ":946684900\r\n", "PERSIST a", one, "TTL a", ":-1\r\n", "PERSIST a", zero, "TTL b", ":-2\r\n"},
	{"EXPIRE a 1", zero, "SET a 1", replyOK, "EXPIRE a 10 XX", zero, "EXPIRE a 10 GT", zero, "EXPIRE a 10 LT", one, "EXPIRE a 9 GT", zero, "EXPIRE a 11 GT", one, "EXPIRE a 5 NX", zero, "TTL a", ":11\r\n"},
	{"EXPIRE a 1 BAD", "-ERR Unsupported option BAD\r\n", "EXPIRE a 1 GT LT", "-ERR GT and LT options at the same time are not compatible\r\n", "EXPIRE a x", notInt},
	{"SET a 1", replyOK, "EXPIREAT a 0", one, "EXISTS a", zero, "SET a 1", replyOK, "EXPIRE a -1", one, "DBSIZE", zero},
	{"SET a 1", replyOK, "GETEX a EX 10", "$1\r\n1\r\n", "TTL a", ":10\r\n", "GETEX a PERSIST", "$1\r\n1\r\n", "TTL a", ":-1\r\n", "GETEX a KEEPTTL", syntax, "GETEX b EX x", null},
	{"SET a 1", replyOK, "GETDEL a", "$1\r\n1\r\n", "GETDEL a", null, "APPEND a x", one, "APPEND a yz", ":3\r\n", "GET a", "$3\r\nxyz\r\n"},
	{"INCR n", one, "INCRBY n 41", ":42\r\n", "DECR n", ":41\r\n", "DECRBY n 42", ":-1\r\n", "GET n", "$2\r\n-1\r\n", "INCRBY n x", notInt, "DECRBY n -9223372036854775808", "-ERR decrement would overflow\r\n"},
	{"SET n 9223372036854775807", replyOK, "INCR n", "-ERR increment or decrement would overflow\r\n", "SET n 01", replyOK, "INCR n", notInt},
	{"MSET a 1 b 2 c 3 d 4 e 5", replyOK, "MGET e x c a", "*4\r\n$1\r\n5\r\n$-1\r\n$1\r\n3\r\n$1\r\n1\r\n", "EXISTS a b a x", ":3\r\n", "DEL a b a x", ":2\r\n", "DBSIZE", ":3\r\n",
		"MSET a", "-ERR wrong number of arguments for 'mset' command\r\n", "MSET a 1 b", "-ERR wrong number of arguments for 'mset' command\r\n", "MSET a 1 a 2", replyOK, "GET a", "$1\r\n2\r\n"},
	{"MSET a 1 b 2 c 3", replyOK, "FLUSHALL BAD", syntax, "FLUSHALL", replyOK, "DBSIZE", zero, "MGET a b c", "*3\r\n$-1\r\n$-1\r\n$-1\r\n", "FLUSHALL async", replyOK},
	{"SCAN x", "-ERR invalid cursor\r\n", "SCAN 0 COUNT x", notInt, "SCAN 0 COUNT 0", syntax, "SCAN 0 MATCH", syntax, "SCAN 0 TYPE string", syntax},
}

func TestMain(m *testing.M) { testkit.MainOrTests(m, main) }

func TestFlags(t *testing.T) {
	testkit.FlagErrors(t, [][]string{
		{`besides the flags: ["x"]`, "x"}, {"-addr nowhere", "-addr=nowhere"}, {"-addr is empty", "-addr="}, {"-loops -1", "-addr=tcp://127.0.0.1:0", "-loops=-1"},
	})
}

func TestCommands(t *testing.T) {
	for _, loops := range []int{1, 4} {
		for _, lines := range dialogues {
			t.Run(fmt.Sprintf("loops=%d/%s", loops, lines[0]), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					want(t, startMemory(t, loops).Open(), lines...)
				})
			})
		}
	}
}

func TestHello(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		got := do(startMemory(t, 1).Open(), "HELLO\r\n", "HELLO 2\r\n")
		one := regexp.QuoteMeta("*14\r\n$6\r\nserver\r\n$5\r\nredis\r\n$7\r\nversion\r\n$6\r\n7.0.15\r\n$5\r\nproto\r\n:2\r\n$2\r\nid\r\n:") + `\d+` +
			regexp.QuoteMeta("\r\n$4\r\nmode\r\n$10\r\nstandalone\r\n$4\r\nrole\r\n$6\r\nmaster\r\n$7\r\nmodules\r\n*0\r\n")
		if !regexp.MustCompile("^" + one + one + "$").MatchString(got) {
			t.Errorf("got %q, want two times %s", got, one)
		}
	})
}

// A value may be 16 MiB long, and no longer by APPEND either.
func TestLongValues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := startMemory(t, 2).Open()
		value := strings.Repeat("x", maxValue)
		if got, want := do(p, wire("SET", "k", value)), replyOK; got != want {
			t.Errorf("SET: got %q, want %q", got, want)
		}
		want(t, p, "APPEND k y", "-ERR string exceeds maximum allowed size (proto-max-bulk-len)\r\n", "STRLEN k", ":16777216\r\n")
		if got, want := do(p, wire("GET", "k")), "$16777216\r\n"+value+"\r\n"; got != want {
			t.Errorf("GET: got %d bytes, want %d", len(got), len(want))
		}
	})
}

// A reply is not longer than the longest value: MGET of one key again and again is refused before
// the values are copied, and SCAN has more steps.
func TestLongReplies(t *testing.T) {
	for _, loops := range []int{1, 3} {
		synctest.Test(t, func(t *testing.T) {
			p := startMemory(t, loops).Open()
			value := strings.Repeat("x", maxReply/4)
			do(p, wire("SET", "k", value))
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			want(t, p, "MGET"+strings.Repeat(" k", 100), "-ERR the reply is longer than 16777216 bytes\r\n")
			runtime.ReadMemStats(&after)
			if n := after.TotalAlloc - before.TotalAlloc; n > 2*maxReply {
				t.Errorf("%d bytes are allocated for a reply that is refused", n)
			}
			bulk := fmt.Sprintf("$%d\r\n%s\r\n", len(value), value)
			if got, want := do(p, "MGET k none k k\r\n"), "*4\r\n"+bulk+"$-1\r\n"+bulk+bulk; got != want {
				t.Errorf("MGET: got %d bytes, want %d", len(got), len(want))
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		p := startMemory(t, 1).Open()
		const keys = 6
		for i := range keys {
			do(p, wire("SET", strings.Repeat(strconv.Itoa(i), maxReply/4), ""))
		}
		cursor, found, steps := "0", 0, 0
		for steps == 0 || cursor != "0" {
			reply := do(p, "SCAN "+cursor+" COUNT 1000000\r\n")
			if len(reply) > maxReply+1000 {
				t.Fatalf("a reply of %d bytes, want %d at most", len(reply), maxReply)
			}
			cursor = strings.Split(reply, "\r\n")[2]
			found += strings.Count(reply, "$") - 1
			steps++
		}
		if found != keys || steps < 2 {
			t.Errorf("%d keys in %d steps, want %d in more than one", found, steps, keys)
		}
	})
}

func TestMatch(t *testing.T) {
	for _, tt := range []struct {
		pattern, s string
		want       bool
	}{
		{"*", "", true}, {"**", "", false}, {"", "", true}, {"", "a", false}, {"?", "", false}, {"*", "abc", true}, {"a*c", "abbc", true}, {"a*c", "abcd", false},
		{"a?c", "abc", true}, {"a?c", "ac", false}, {"[a-c]x", "bx", true}, {"[c-a]x", "bx", true}, {"[^a-c]x", "bx", false}, {"[^a-c]x", "dx", true},
		{"\\*", "*", true}, {"\\*", "a", false}, {"a\\", "a\\", true}, {"[\\-a]", "-", true}, {"[\\\\-b]", "a", false}, {"[\\\\a-c]", "b", true},
		{"[", "[", false}, {"[a", "a", true}, {"[]", "]", false}, {"[^", "a", true}, {"*a*b*c", "xaxbxc", true}, {"*ab", "aab", true}, {"a**", "a", true},
		{strings.Repeat("a*", 50) + "b", strings.Repeat("a", 1000), false}, // which takes no time
	} {
		if got := match([]byte(tt.pattern), []byte(tt.s)); got != tt.want {
			t.Errorf("match(%q, %q) = %t, want %t", tt.pattern, tt.s, got, tt.want)
		}
	}
}

// The client that most Go programs have works as it is: it asks for RESP3 first, or for RESP2.
func TestGoRedis(t *testing.T) {
	for _, protocol := range []int{2, 3} {
		t.Run(fmt.Sprintf("RESP%d", protocol), func(t *testing.T) {
			c := redis.NewClient(&redis.Options{Addr: start(t, 3), Protocol: protocol})
			t.Cleanup(func() { _ = c.Close() })
			ctx := context.Background()
			cmds, err := c.Pipelined(ctx, func(p redis.Pipeliner) error {
				for i := range 1000 {
					p.Set(ctx, fmt.Sprint("k", i), i, 0)
					p.Incr(ctx, fmt.Sprint("k", i))
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			for i, cmd := range cmds {
				if n, ok := cmd.(*redis.IntCmd); ok && n.Val() != int64(i/2+1) {
					t.Fatalf("reply %d is %v", i, cmd)
				}
			}
			seen := make(map[string]bool)
			for it := c.Scan(ctx, 0, "k*", 50).Iterator(); it.Next(ctx); {
				seen[it.Val()] = true
			}
			if len(seen) != 1000 {
				t.Errorf("a walk over 1000 keys saw %d", len(seen))
			}
			if got, err := c.MGet(ctx, "k1", "none", "k2").Result(); err != nil || fmt.Sprint(got) != "[2 <nil> 3]" {
				t.Errorf("MGet() = %v, %v; want [2 <nil> 3]", got, err)
			}
		})
	}
}

// cas is the command of README.md.
var casEntry = map[string]*command{
	"cas": {arity: 4, key: cas},
}

func cas(sh *shard, e *entry, args [][]byte, out []byte) []byte {
	if e == nil || !bytes.Equal(e.value, args[2]) {
		return appendInt(out, 0)
	}
	sh.put(e, args[1], args[3])
	return appendInt(out, 1)
}

// The command that README.md shows is this one, and it works.
func TestReadmeCommand(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("commands_test.go")
	if err != nil {
		t.Fatal(err)
	}
	_, shown, _ := strings.Cut(string(readme), "```go\n")
	shown, _, _ = strings.Cut(shown, "```")
	line, function, _ := strings.Cut(shown, "\n\n")
	if line == "" || !strings.Contains(string(source), "\t"+line+"\n") || !strings.Contains(string(source), "\n"+function) {
		t.Errorf("README.md shows %q, which is not what is tested here", shown)
	}
	maps.Copy(commands, casEntry)
	t.Cleanup(func() { delete(commands, "cas") })
	synctest.Test(t, func(t *testing.T) {
		want(t, startMemory(t, 3).Open(), "CAS k a b", zero, "SET k a EX 100", replyOK, "CAS k x b", zero, "CAS k a b", one, "GET k", "$1\r\nb\r\n",
			"TTL k", ":100\r\n", "CAS k", "-ERR wrong number of arguments for 'cas' command\r\n")
	})
}

// README.md lists the commands that there are.
func TestReadme(t *testing.T) {
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(text), "## What it supports\n")
	table, _, _ = strings.Cut(table, "\n## ")
	var listed []string
	for _, m := range regexp.MustCompile("`([A-Z]+)[ `]").FindAllStringSubmatch(table, -1) {
		listed = append(listed, strings.ToLower(m[1]))
	}
	slices.Sort(listed)
	listed = slices.Compact(listed)
	if there := slices.Sorted(maps.Keys(commands)); !slices.Equal(listed, there) {
		t.Errorf("README.md lists %q, want %q", listed, there)
	}
}

// The program says where it listens, and how it ends.
func TestProgram(t *testing.T) {
	var out bytes.Buffer
	ctx, cancel := context.WithCancel(t.Context())
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	if err := run(ctx, newServer("tcp://"+ln.Addr().String(), 0).net, &out); err == nil || out.Len() > 0 {
		t.Errorf("on an address that is in use: got %v, %q; want an error", err, out.String())
	}
	srv := newServer("tcp://127.0.0.1:0", 0).net
	cancel()
	if err := run(ctx, srv, &out); err != nil {
		t.Errorf("run() = %v, want nil", err)
	}
	if got := out.String(); !regexp.MustCompile(`^kv: listening on tcp://127.0.0.1:\d+\nkv: connect with: redis-cli -h 127.0.0.1 -p \d+\nkv: drained, bye\n$`).MatchString(got) {
		t.Errorf("it says %q", got)
	}
}
