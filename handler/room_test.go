package handler_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/loopwheel/loopwheel/handler"
	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/looptest"
)

// rests queues much output for a peer that reads nothing, lets a minute pass without a write, and
// then makes the peer read all of it. No time passes: the loop learns that the socket is writable.
func rests(t *testing.T, srv *looptest.Server, p *looptest.Peer, want string) {
	t.Helper()
	synctest.Wait()
	fired := srv.Stats().Fired
	testkit.Pass(time.Minute)
	if n := srv.Stats().Fired - fired; n > 3 {
		t.Errorf("%d timers fired while the peer took nothing", n)
	}
	began := time.Now()
	p.Unblock()
	var got strings.Builder
	for range 100 {
		got.WriteString(p.Received())
		synctest.Wait()
	}
	if got.String() != want || time.Since(began) >= 5*time.Millisecond {
		t.Errorf("%d bytes arrived within %v, want %d at once", got.Len(), time.Since(began), len(want))
	}
	if p.Reason() != nil {
		t.Errorf("closed: %v", p.Reason())
	}
}

func TestLinkRestsWhileThePeerTakesNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var k *linked
		var peer *looptest.Peer
		k = newLinked(t, handler.LinkConfig{Backlog: 3000, Accept: func(*loop.Conn) loop.Handler {
			if k != nil {
				peer = k.backend.Accept()
				peer.Block(0)
			}
			return loop.HandlerFunc(echo)
		}})
		msg := strings.Repeat("x", 1<<10)
		k.keep(3000, msg)
		rests(t, k.srv, peer, strings.Repeat(msg+"\n", 3000))
	})
}

func TestRepliesRestWhileThePeerTakesNothing(t *testing.T) {
	const n = 300
	answer := strings.Repeat("x", 10<<10) + "\n"
	bubble(t, func(t *testing.T) {
		srv := startLines(t, 1, func(c *loop.Conn) loop.Handler {
			answers := handler.NewReplies(c, handler.RepliesConfig{})
			return loop.HandlerFunc(func(_ *loop.Conn, msg []byte) error {
				return answers.RunOn(c.Loop(), func(dst []byte) []byte { return append(dst, answer...) })
			})
		})
		p := srv.Open()
		p.Block(0)
		p.Send(strings.Repeat("get\n", n))
		rests(t, srv, p, strings.Repeat(answer, n))
	})
}

// What holds a connection because too many of its answers wait, and what its user pauses, do not
// end each other. Nothing is lost, though the peer has ended its output meanwhile.
func TestRepliesAndPauses(t *testing.T) {
	const max = 10
	bubble(t, func(t *testing.T) {
		var answers []*handler.Reply
		var conn *loop.Conn
		var a *handler.Replies
		srv := startLines(t, 1, func(c *loop.Conn) loop.Handler {
			conn, a = c, handler.NewReplies(c, handler.RepliesConfig{MaxWaiting: max})
			return loop.HandlerFunc(func(*loop.Conn, []byte) error {
				answers = append(answers, a.Later())
				return nil
			})
		})
		p := srv.Open()
		want := func(what string, n int) {
			t.Helper()
			if len(answers) != n {
				t.Errorf("%s: %d are asked, want %d", what, len(answers), n)
			}
		}
		do := func(f func()) { srv.Do(0, func(*loop.Loop) { f() }) }
		done := func() {
			for a.Waiting() > 0 {
				answers[len(answers)-a.Waiting()].Done([]byte("x\n"))
			}
		}
		p.Send(strings.Repeat("get\n", 4*max))
		do(conn.ResumeRead)
		want("the user resumes while too many wait", max)
		do(func() { conn.PauseRead(); done() })
		testkit.Pass(time.Second)
		want("too few wait while the user pauses", max)
		do(conn.ResumeRead)
		want("the user resumes", 2*max)
		p.CloseWrite()
		testkit.Pass(time.Second)
		do(done)
		do(done)
		want("the peer has ended its output", 4*max)
		do(done)
		wantReceived(t, p, strings.Repeat("x\n", 4*max))
	})
}
