package handler_test

import (
	"fmt"
	"math/rand/v2"
	"runtime/pprof"
	"strings"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/handler"
	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/looptest"
)

// asking returns an Accept whose connections answer "now X" at once, "later X" a second later, "ask
// N X" on loop N, "panic N" not at all.
func asking(srv **looptest.Server, max int) loop.Accept {
	return func(c *loop.Conn) loop.Handler {
		a := handler.NewReplies(c, handler.RepliesConfig{MaxWaiting: max})
		return loop.HandlerFunc(func(c *loop.Conn, msg []byte) error {
			line := string(msg) + "\n"
			switch how, _, _ := strings.Cut(line, " "); how {
			case "later":
				answer := a.Later()
				c.AfterFunc(time.Second, func() {
					answer.Done([]byte(line))
					answer.Done([]byte("twice\n"))
				})
			case "ask", "panic":
				n := int(line[len(how)+1] - '0')
				return a.RunOn((*srv).Loops()[n], func(dst []byte) []byte {
					if how == "panic" {
						panic("the code of a handler")
					}
					return append(dst, line...)
				})
			default:
				return a.Write([]byte(line))
			}
			return nil
		})
	}
}

func startAsking(t *testing.T, max int) *looptest.Server {
	var srv *looptest.Server
	srv = startLines(t, 3, asking(&srv, max))
	return srv
}

func TestRepliesKeepOrder(t *testing.T) {
	bubble(t, func(t *testing.T) {
		srv := startAsking(t, 0)
		p := srv.Open()
		p.Send("now 1\n", "later 2\n", "now 3\nnow 4\n", "ask 1 5\n", "ask 2 6\nask 0 7\n", "now 8\n")
		wantReceived(t, p, "now 1\n")
		writes := p.Writes()
		testkit.Pass(time.Second)
		wantReceived(t, p, "later 2\nnow 3\nnow 4\nask 1 5\nask 2 6\nask 0 7\nnow 8\n")
		if n := p.Writes() - writes; n != 1 {
			t.Errorf("what waited for one answer was sent in %d pieces", n)
		}
	})
}

// Whatever the order in which answers are ready, they come in that of the requests.
func TestRepliesInRandomOrder(t *testing.T) {
	bubble(t, func(t *testing.T) {
		srv := startAsking(t, 0)
		p := srv.Open()
		random := rand.New(rand.NewPCG(testkit.Seed(t, 1), 2))
		var want strings.Builder
		for i := range 500 {
			line := fmt.Sprintf("%s %d\n", [...]string{"now", "later", "ask 0", "ask 1", "ask 2"}[random.IntN(5)], i)
			want.WriteString(line)
			p.Send(line)
			if random.IntN(50) == 0 {
				testkit.Pass(time.Duration(random.IntN(1000)) * time.Millisecond)
			}
		}
		testkit.Pass(2 * time.Second)
		wantReceived(t, p, want.String())
	})
}

// A connection with too many answers that wait is not read.
func TestRepliesThatWaitAreBounded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const max = 10
		var answers *handler.Replies
		var first *handler.Reply
		srv := startLines(t, 1, func(c *loop.Conn) loop.Handler {
			answers = handler.NewReplies(c, handler.RepliesConfig{MaxWaiting: max})
			return loop.HandlerFunc(func(_ *loop.Conn, msg []byte) error {
				if a := answers.Later(); first == nil {
					first = a
				} else {
					a.Done(append(msg, '\n'))
				}
				return nil
			})
		})
		p := srv.Open()
		p.Send(strings.Repeat("x\n", 100))
		srv.Do(0, func(*loop.Loop) {
			if n := answers.Waiting(); n != max {
				t.Errorf("%d wait, want %d", n, max)
			}
			first.Done([]byte("first\n"))
		})
		testkit.Pass(0)
		wantReceived(t, p, "first\n"+strings.Repeat("x\n", 99))
	})
}

func TestAnswerThatIsLost(t *testing.T) {
	bubble(t, func(t *testing.T) {
		srv := startAsking(t, 0)
		p, other := srv.Open(), srv.Open()
		p.Send("panic 1\n", "now 2\n")
		testkit.Pass(10 * time.Second)
		if !p.Closed() || p.Reason() == nil {
			t.Errorf("it is open, though its answer is lost: %v", p.Reason())
		}
		other.Send("ask 1 x\n") // the loop goes on
		testkit.Pass(0)
		wantReceived(t, other, "ask 1 x\n")
	})
}

// A connection that closes with answers that wait leaves nothing behind, and Done does no harm.
func TestRepliesOfAClosedConnection(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var answer *handler.Reply
		srv := startLines(t, 2, func(c *loop.Conn) loop.Handler {
			a := handler.NewReplies(c, handler.RepliesConfig{})
			return loop.HandlerFunc(func(*loop.Conn, []byte) error {
				answer = a.Later()
				return nil
			})
		})
		p := srv.Open()
		p.Send("x\n")
		p.Close()
		testkit.Pass(10 * time.Second)
		srv.Do(0, func(*loop.Loop) { answer.Done([]byte("late\n")) })
		wantReceived(t, p, "")
	})
}

func TestRepliesRefuse(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	handler.NewReplies(nil, handler.RepliesConfig{MaxWaiting: -1})
}

// A client that pipelines, and reads, gets all its answers, however much they are together and
// however late the first of them is: ready ones wait until those before have gone.
func TestRepliesThatAreMuch(t *testing.T) {
	const n = 400
	answer := strings.Repeat("x", 10<<10) + "\n"
	bubble(t, func(t *testing.T) {
		for name, later := range map[string]bool{"each by itself": false, "all after the first": true} {
			var srv *looptest.Server
			srv = startLines(t, 2, func(c *loop.Conn) loop.Handler {
				answers := handler.NewReplies(c, handler.RepliesConfig{})
				if later {
					first := answers.Later()
					c.AfterFunc(time.Second, func() { first.Done([]byte(answer)) })
				}
				return loop.HandlerFunc(func(_ *loop.Conn, msg []byte) error {
					return answers.RunOn(srv.Loops()[1-c.Loop().Index()], func(dst []byte) []byte { return append(dst, answer...) })
				})
			})
			p := srv.Open()
			p.Send(strings.Repeat("get\n", n))
			got := 0
			for range 300 {
				srv.Sleep(time.Second)
				got += strings.Count(p.Received(), "\n")
			}
			want := n
			if later {
				want++
			}
			if got != want || p.Reason() != nil {
				t.Errorf("%s: %d answers of %d, and then %v", name, got, want, p.Reason())
			}
		}
	})
}

// Replies for a loop whose mailbox is full come when it goes on, and take no goroutine until then.
func TestRepliesWaitForTheMailbox(t *testing.T) {
	const n = 500
	bubble(t, func(t *testing.T) {
		srv := startAsking(t, n+1)
		p := srv.Open()
		for range 2 { // they wait again when all have gone
			answersWaitForTheMailbox(t, srv, p, n)
		}
	})
}

// startedHere returns how many goroutines there are that package handler has started.
func startedHere() int {
	var all strings.Builder
	_ = pprof.Lookup("goroutine").WriteTo(&all, 2)
	return strings.Count(all.String(), "\ncreated by github.com/loopwheel/loopwheel/handler.")
}

func answersWaitForTheMailbox(t *testing.T, srv *looptest.Server, p *looptest.Peer, n int) {
	resume := srv.Stall(1)
	want := ""
	for i := range n {
		line := fmt.Sprintf("ask 1 %d\n", i)
		p.Send(line)
		want += line
	}
	resumeOwn := srv.Stall(0)
	for srv.Loops()[0].TryPost(func() {}) == nil {
	}
	resume()
	testkit.Pass(0)
	if waiting := startedHere(); waiting != 0 {
		t.Errorf("%d goroutines wait, for %d answers", waiting, n)
	}
	wantReceived(t, p, "")
	resumeOwn()
	testkit.Pass(time.Second)
	wantReceived(t, p, want)
}

// Replies that wait count as buffers of the server, until they are sent or the connection closes.
func TestRepliesCountAsBuffered(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var replies *handler.Replies
		var first *handler.Reply
		srv := startLines(t, 1, func(c *loop.Conn) loop.Handler {
			replies = handler.NewReplies(c, handler.RepliesConfig{})
			first = replies.Later()
			return loop.HandlerFunc(func(c *loop.Conn, msg []byte) error { return replies.Write(make([]byte, 10<<10)) })
		})
		base := 0
		for round := range 3 {
			p := srv.Open()
			p.Send("1\n")
			before := srv.Stats().Buffered
			p.Send("2\n3\n4\n5\n")
			if n := srv.Stats().Buffered - before; n != 40<<10 {
				t.Errorf("four more replies of 10 KiB wait, and %d bytes more are buffered", n)
			}
			if round < 2 {
				srv.Do(0, func(*loop.Loop) { first.Done(nil) })
			}
			p.Close()
			testkit.Pass(time.Second)
			switch n := srv.Stats().Buffered; {
			case round == 0: // the loop keeps a buffer
				base = n
			case n != base:
				t.Errorf("%d bytes are buffered after the end, want %d", n, base)
			}
		}
	})
}
