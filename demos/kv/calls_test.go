package main

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop/looptest"
)

// keysOf returns keys with this prefix, n for each loop.
func keysOf(s *server, prefix string, n int) (of [][]string) {
	client := &session{server: s, loops: s.net.Loops()}
	of = make([][]string, len(client.loops))
	for i, full := 0, 0; full < len(of); i++ {
		key := fmt.Sprint(prefix, i)
		l := client.loopOf([]byte(key)).Index()
		if len(of[l]) < n {
			if of[l] = append(of[l], key); len(of[l]) == n {
				full++
			}
		}
	}
	return of
}

// What a client of several loops sees is what a client of one loop does: a random script of
// pipelines has the same replies. Virtual time is the same on both, too.
func TestLoopsMakeNoDifference(t *testing.T) {
	g := newGenerator(testkit.Seed(t, 1))
	synctest.Test(t, func(t *testing.T) {
		g.now = time.Now().Unix()
		one, four := startMemory(t, 1).Open(), startMemory(t, 4).Open()
		for range 100 {
			var pipeline []string
			for range 1 + g.IntN(100) {
				pipeline = append(pipeline, wire(g.command()...))
			}
			if g.oneIn(10) {
				pipeline = append(pipeline, "DBSIZE\r\nINFO keyspace\r\n")
			}
			if want, got := do(one, pipeline...), do(four, pipeline...); got != want {
				for i := range want {
					if i >= len(got) || got[i] != want[i] {
						t.Fatalf("with one loop %s, with four %s", short(want[max(0, i-50):]), short(got[max(0, i-50):]))
					}
				}
				t.Fatalf("four loops reply more than one: %s", short(got[len(want):]))
			}
			testkit.Pass(time.Duration(g.IntN(10)) * time.Millisecond)
		}
	})
}

// Replies come in the order of the requests though the loop of the first key makes its reply last.
func TestRepliesKeepTheirOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer("", 3)
		srv := looptest.Start(t, s.net)
		p := srv.Open()
		keys := keysOf(s, "key", 1)
		var pipeline, expected string
		for i, k := range keys {
			pipeline += wire("SET", k[0], fmt.Sprint(i))
			expected += replyOK
		}
		for i, k := range keys {
			pipeline += wire("GET", k[0])
			expected += fmt.Sprintf("$1\r\n%d\r\n", i)
		}
		pipeline += wire("MGET", keys[2][0], "none", keys[1][0], keys[0][0]) + "ECHO last\r\n"
		expected += "*4\r\n$1\r\n2\r\n$-1\r\n$1\r\n1\r\n$1\r\n0\r\n$4\r\nlast\r\n"
		for i := range keys {
			resume := srv.Stall(i)
			p.Send(pipeline)
			got := p.Received()
			if i == 1 && !strings.HasPrefix(got, replyOK) || strings.Contains(got, "last") {
				t.Errorf("loop %d is stalled: got %q", i, got)
			}
			resume()
			srv.Sleep(0)
			if got += p.Received(); got != expected {
				t.Errorf("loop %d was stalled: got %q, want %q", i, got, expected)
			}
		}
	})
}

// A client whose commands wait for another loop is not read for ever: its commands take no memory
// without limit, and it gets all replies in the end.
func TestCommandsThatWaitAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer("", 2)
		srv := looptest.Start(t, s.net)
		p := srv.Open()
		key := keysOf(s, "key", 1)[1][0]
		resume := srv.Stall(1)
		const n = 10_000
		p.Send(strings.Repeat(wire("INCR", key), n))
		if got := srv.Stats().Loops[1].Mailbox; got > maxWaiting {
			t.Errorf("got %d functions in the mailbox, want %d at most", got, maxWaiting)
		}
		resume()
		srv.Sleep(0)
		if got := strings.Count(p.Received(), "\r\n"); got != n {
			t.Errorf("got %d replies, want %d", got, n)
		}
		want(t, p, "GET "+key, fmt.Sprintf("$5\r\n%d\r\n", n))
	})
}

// A loop whose mailbox is full takes what clients of other loops wait for nevertheless.
func TestFullMailbox(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer("", 2)
		s.net.Limits.MaxMailbox = 10
		srv := looptest.Start(t, s.net)
		p := srv.Open()
		keys := keysOf(s, "key", 20)
		resume := srv.Stall(1)
		for srv.Loops()[1].TryPost(func() {}) == nil {
			continue
		}
		var pipeline, expected string
		for _, k := range append(keys[1], keys[0]...) {
			pipeline += wire("SET", k, k) + wire("STRLEN", k)
			expected += fmt.Sprintf("+OK\r\n:%d\r\n", len(k))
		}
		p.Send(pipeline + "DBSIZE\r\n")
		resume()
		srv.Sleep(0)
		if got, want := p.Received(), expected+":40\r\n"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

// A command that panics on another loop has an error for a reply, and does not stop those after it.
func TestPanicOnAnotherLoop(t *testing.T) {
	commands["boom"] = &command{arity: 2, key: func(*shard, *entry, [][]byte, []byte) []byte { panic("boom") }}
	t.Cleanup(func() { delete(commands, "boom") })
	synctest.Test(t, func(t *testing.T) {
		s := newServer("", 2)
		srv := looptest.Start(t, s.net)
		p := srv.Open()
		key := keysOf(s, "key", 1)[1][0]
		got := do(p, wire("SET", key, "1"), wire("BOOM", key), wire("INCR", key))
		if want := "+OK\r\n-ERR internal error\r\n:2\r\n"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

// The last reply comes behind those that other loops still make, and what a client has sent after
// its QUIT, or after what is no request, is not run.
func TestEndBehindOtherLoops(t *testing.T) {
	for _, tt := range []struct{ last, want string }{
		{"QUIT\r\n", replyOK},
		{"*1\r\n$x\r\n", "-ERR Protocol error: invalid bulk length\r\n"},
		{"PING 'a\r\n", "-ERR Protocol error: unbalanced quotes in request\r\n"},
	} {
		t.Run(tt.last, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer("", 3)
				srv := looptest.Start(t, s.net)
				p := srv.Open()
				keys := keysOf(s, "key", 1)
				resume := srv.Stall(1)
				p.Send(wire("INCR", keys[1][0]) + wire("MSET", keys[0][0], "a", keys[2][0], "b") + tt.last + wire("SET", keys[0][0], "c"))
				resume()
				srv.Sleep(0)
				if got, want := p.Received(), one+replyOK+tt.want; got != want {
					t.Errorf("got %q, want %q", got, want)
				}
				if !p.Ended() || p.Reason() != nil {
					t.Errorf("ended %t, with %v; want a close", p.Ended(), p.Reason())
				}
				want(t, srv.Open(), "GET "+keys[0][0], "$1\r\na\r\n")
			})
		})
	}
}

// A client that ends its output after its commands, as nc -N does, gets all replies.
func TestPipelineThatEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer("", 3)
		srv := looptest.Start(t, s.net)
		p := srv.Open()
		resume := srv.Stall(1)
		p.Send(wire("SET", keysOf(s, "key", 1)[1][0], "1") + "DBSIZE\r\n")
		p.CloseWrite()
		resume()
		srv.Sleep(0)
		if got, want := p.Received(), replyOK+one; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		if !p.Closed() {
			t.Error("the connection is open, want it closed")
		}
	})
}

// A client that has gone while another loop works for it harms nobody.
func TestClientThatHasGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer("", 2)
		srv := looptest.Start(t, s.net)
		gone, p := srv.Open(), srv.Open()
		key := keysOf(s, "key", 1)[1][0]
		resume := srv.Stall(1)
		gone.Send(wire("SET", key, "v"))
		gone.Reset()
		resume()
		srv.Sleep(0)
		want(t, p, "GET "+key, "$1\r\nv\r\n")
	})
}

// A client that pipelines and does not read is not served ahead of what it reads.
func TestPipelineThatIsNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := startMemory(t, 2)
		p := srv.Open()
		do(p, wire("SET", "big", strings.Repeat("x", 20_000)))
		p.Block(0)
		const n = 300
		p.Send(strings.Repeat(wire("GET", "big"), n))
		if got := srv.Stats().Messages; got > maxWaiting+50 {
			t.Errorf("got %d commands run, want %d at most", got, maxWaiting+50)
		}
		p.Unblock()
		srv.Sleep(0)
		if got, want := len(p.Received()), n*len("$20000\r\n\r\n")+n*20_000; got != want {
			t.Errorf("got %d bytes, want %d", got, want)
		}
		if p.Ended() {
			t.Errorf("closed with %v", p.Reason())
		}
	})
}

// A page can make a browser send commands in the body of a POST. None of them runs.
func TestHTTPIsRefused(t *testing.T) {
	for _, head := range []string{"POST / HTTP/1.1\r\nHost: x\r\n\r\n", "post /\r\n", "Host: x\r\n", " \tHOST: x\n", wire("POST")} {
		t.Run(head, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := startMemory(t, 1)
				p := srv.Open()
				p.Send(head + "SET pwned yes\r\n")
				if got := p.Received(); got != "" || !errors.Is(p.Reason(), errHTTP) {
					t.Errorf("got %q, closed with %v; want nothing, %v", got, p.Reason(), errHTTP)
				}
				want(t, srv.Open(), "EXISTS pwned", zero)
			})
		})
	}
}

// SCAN misses no key that is there from the first step to the last one, while others come and go.
func TestScanWhileKeysChange(t *testing.T) {
	g := newGenerator(testkit.Seed(t, 1))
	synctest.Test(t, func(t *testing.T) {
		p := startMemory(t, 3).Open()
		for range 20 {
			for i := range 100 {
				p.Send(wire("SET", fmt.Sprint("stays", i), "v"))
			}
			p.Received()
			seen := make(map[string]bool)
			for cursor := "0"; ; {
				reply := do(p, wire("SCAN", cursor, "COUNT", "7", "MATCH", "stays*"))
				parts := strings.SplitN(reply, "\r\n", 4)
				if len(parts) < 4 {
					t.Fatalf("SCAN replies %q", reply)
				}
				keys, err := elements(parts[3])
				if err != nil {
					t.Fatalf("SCAN replies %q: %v", reply, err)
				}
				for _, key := range keys {
					seen[key] = true
				}
				if cursor = parts[2]; cursor == "0" {
					break
				}
				for range 20 {
					p.Send(wire(g.pick("DEL", "INCR"), fmt.Sprint("goes", g.IntN(300))))
				}
				p.Received()
			}
			if len(seen) != 100 {
				t.Fatalf("a walk has seen %d keys of 100", len(seen))
			}
			want(t, p, "FLUSHALL", replyOK)
		}
	})
}

// Clients on several loops change the same keys at once, and nothing is lost.
func TestClientsAtOnce(t *testing.T) {
	addr := start(t, 3)
	const clients, rounds = 6, 200
	var all sync.WaitGroup
	for range clients {
		c := dial(t, addr)
		all.Go(func() {
			for range rounds {
				c.send(wire("INCR", "a") + wire("INCR", "b") + wire("APPEND", "c", "x") + wire("MGET", "a", "b", "c") + "DBSIZE\r\n")
				for range 5 {
					if reply, err := readReply(c.in); err != nil || reply[0] == '-' {
						t.Errorf("got %q, %v", reply, err)
						return
					}
				}
			}
		})
	}
	all.Wait()
	c := dial(t, addr)
	c.send("MGET a b\r\nSTRLEN c\r\n")
	if got, want := c.read(t)+c.read(t), "*2\r\n$4\r\n1200\r\n$4\r\n1200\r\n:1200\r\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// A call to a loop that the system has broken has an error for a reply, as long as the other loops
// serve their connections.
func TestCallOfABrokenLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer("", 2)
		s.net.Logger, s.net.Drain.Window = zerolog.Nop(), 10*time.Second
		srv := looptest.Start(t, s.net)
		var peers []*looptest.Peer
		for range 20 { // half of them on each loop; one after the other is closed, in random order
			peers = append(peers, srv.Open())
		}
		keys := keysOf(s, "key", 1)
		srv.BreakLoop(1, errors.New("broken"))
		replies := 0
		for _, p := range peers {
			if p.Closed() {
				continue
			}
			got := do(p, wire("GET", keys[1][0]), wire("MGET", keys[0][0], keys[1][0]), wire("GET", keys[0][0]))
			if want := "-ERR loop: server closed\r\n-ERR loop: server closed\r\n$-1\r\n"; got != want {
				t.Errorf("got %q, want %q", got, want)
			}
			replies++
		}
		if replies == 0 {
			t.Error("no connection was open any more")
		}
		if err := srv.Stop(); err == nil || !strings.Contains(err.Error(), "broken") {
			t.Errorf("Stop() = %v, want broken in it", err)
		}
	})
}
