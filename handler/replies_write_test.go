package handler_test

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/loopwheel/loopwheel/handler"
	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/looptest"
)

// Output pushed after answers that the peer has asked for does not cost the connection, however
// much they are: neither while one of them takes long, nor while the peer reads them.
func TestRepliesPushedBehindMuch(t *testing.T) {
	for name, size := range map[string]int{"some that are large": 2 << 20, "many": 10 << 10} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) { pushBehind(t, size, max(2, 5<<20/size)) })
		})
	}
}

// pushBehind pushes after an answer that takes long and n of size bytes that are ready, and once
// more when they are due but the peer takes none yet.
func pushBehind(t *testing.T, size, n int) {
	const limit = 1 << 20
	var a *handler.Replies
	var first *handler.Reply
	answer := bytes.Repeat([]byte{'x'}, size)
	push := func(when string) {
		if err := a.Write([]byte("push")); err != nil {
			t.Errorf("%s: %v", when, err)
		}
	}
	srv := looptest.Start(t, &loop.Server{NumLoops: 1, Limits: loop.Limits{MaxOutbound: limit}, Accept: func(c *loop.Conn) loop.Handler {
		a = handler.NewReplies(c, handler.RepliesConfig{})
		return loop.HandlerFunc(func(*loop.Conn, []byte) error {
			first = a.Later()
			for range n {
				a.Later().Done(answer)
			}
			push("while the first takes long")
			return nil
		})
	}})
	p := srv.Open()
	p.Send("?")
	want := "first" + strings.Repeat(string(answer), n) + "pushpush"
	p.Block(0)
	srv.Do(0, func(*loop.Loop) {
		first.Done([]byte("first"))
		push("while the peer reads")
	})
	p.Unblock()
	var got strings.Builder
	for range 100 {
		got.WriteString(p.Received())
		testkit.Pass(time.Second)
	}
	if got.String() != want {
		t.Errorf("%d bytes arrived, or not in order; want %d; closed: %v", got.Len(), len(want), p.Reason())
	}
}

// One answer that is larger than all that may be pushed does not cost the connection when something
// is pushed while the peer takes it, however it was given. What is pushed meanwhile is bounded as
// ever.
func TestRepliesPushedBehindALargeOne(t *testing.T) {
	const limit = 1 << 20
	large := bytes.Repeat([]byte{'x'}, 3*limit)
	for name, answer := range map[string]func(a *handler.Replies, l *loop.Loop) error{
		"Write": func(a *handler.Replies, _ *loop.Loop) error { return a.Write(large) },
		"Done":  func(a *handler.Replies, _ *loop.Loop) error { a.Later().Done(large); return nil },
		"RunOn": func(a *handler.Replies, l *loop.Loop) error { return a.RunOn(l, func([]byte) []byte { return large }) },
		"after others": func(a *handler.Replies, _ *loop.Loop) error {
			first := a.Later()
			a.Later().Done(large)
			first.Done(nil)
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) { pushBehindLarge(t, limit, large, answer) })
		})
	}
}

func pushBehindLarge(t *testing.T, limit int, large []byte, answer func(a *handler.Replies, l *loop.Loop) error) {
	var a *handler.Replies
	srv := looptest.Start(t, &loop.Server{NumLoops: 1, Limits: loop.Limits{MaxOutbound: limit}, Accept: func(c *loop.Conn) loop.Handler {
		a = handler.NewReplies(c, handler.RepliesConfig{})
		return loop.HandlerFunc(func(c *loop.Conn, _ []byte) error { return answer(a, c.Loop()) })
	}})
	push := func(p []byte) (err error) {
		srv.Do(0, func(*loop.Loop) { err = a.Write(p) })
		return err
	}
	p := srv.Open()
	p.Block(0)
	p.Send("?")
	for range 3 {
		if err := push([]byte("push")); err != nil {
			t.Errorf("it is pushed after it: %v", err)
		}
	}
	p.Unblock()
	var got strings.Builder
	for range 100 {
		got.WriteString(p.Received())
		testkit.Pass(time.Second)
	}
	if want := string(large) + "pushpushpush"; got.String() != want {
		t.Fatalf("%d bytes arrived, or not in order; want %d; closed: %v", got.Len(), len(want), p.Reason())
	}
	p.Block(0)
	p.Send("?")
	pushed := 0
	for err := error(nil); err == nil && pushed <= 2*limit; pushed += 1 << 10 {
		err = push(make([]byte, 1<<10))
	}
	if pushed < limit || pushed > limit+1<<10 {
		t.Errorf("%d bytes were taken, want %d", pushed, limit)
	}
	testkit.Pass(time.Minute) // in which what was asked for could be taken
	wantReason(t, p, loop.ErrSlowConsumer)
}

// The bytes of Write that were sent count no more.
func TestRepliesPushedAgainAndAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		srv := looptest.Start(t, &loop.Server{NumLoops: 1, Limits: loop.Limits{MaxOutbound: 1 << 20}, Accept: func(c *loop.Conn) loop.Handler {
			a := handler.NewReplies(c, handler.RepliesConfig{})
			return loop.HandlerFunc(func(*loop.Conn, []byte) error {
				first := a.Later()
				err := a.Write(make([]byte, 400<<10))
				first.Done(nil)
				return err
			})
		}})
		p := srv.Open()
		for range 10 {
			p.Send("?")
			if n := len(p.Received()); n != 400<<10 {
				t.Fatalf("%d bytes arrived; closed: %v", n, p.Reason())
			}
		}
	})
}

// A Write after an answer that waits asks whether the connection takes more. That must not run
// OnHighWater's hook, which may give the answer, so that there is none to be after.
func TestRepliesWriteRunsNoHook(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var first *handler.Reply
		srv := looptest.Start(t, &loop.Server{NumLoops: 1, Accept: func(c *loop.Conn) loop.Handler {
			a := handler.NewReplies(c, handler.RepliesConfig{})
			return loop.HandlerFunc(func(*loop.Conn, []byte) error {
				first = a.Later()
				_ = c.Send(bytes.Repeat([]byte{'-'}, 100))
				c.OnHighWater(10, func() { first.Done([]byte("x")) })
				return a.Write([]byte("y"))
			})
		}})
		p := srv.Open()
		p.Send("?")
		srv.Do(0, func(*loop.Loop) { first.Done([]byte("x")) })
		if got, want := p.Received(), strings.Repeat("-", 100)+"xy"; got != want {
			t.Errorf("received %q; closed: %v", got, p.Reason())
		}
	})
}

// On a UDP session, replies that wait send no datagram too early, and none that is empty.
func TestRepliesOverUDP(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var a *handler.Replies
		var first, third *handler.Reply
		var conn *loop.Conn
		accept := func(c *loop.Conn) loop.Handler {
			conn, a = c, handler.NewReplies(c, handler.RepliesConfig{})
			return loop.HandlerFunc(func(*loop.Conn, []byte) error {
				first = a.Later()
				err := a.Write([]byte("2"))
				third = a.Later()
				return errors.Join(err, a.Write([]byte("4")), a.Write([]byte("5")))
			})
		}
		srv := looptest.Start(t, &loop.Server{Addr: "udp://127.0.0.1:0", NumLoops: 1, Accept: accept})
		p := srv.OpenUDP(0)
		p.Send("?")
		if got := p.Received(); len(got) != 0 {
			t.Errorf("while the first takes long: received %q", got)
		}
		srv.Do(0, func(*loop.Loop) { third.Done([]byte("3")); first.Done([]byte("1")) })
		if got := p.Received(); !slices.Equal(got, []string{"1", "2", "3", "4", "5"}) {
			t.Errorf("received %q", got)
		}
		srv.Do(0, func(*loop.Loop) {
			a.Later()
			conn.Close()
			if err := a.Write([]byte("6")); !errors.Is(err, loop.ErrClosed) {
				t.Errorf("after Close: %v", err)
			}
		})
	})
}

// On a UDP session, a reply whose datagram is refused after it waited is logged, as a broadcast is.
func TestRefusedReplyOverUDP(t *testing.T) {
	for want, reply := range map[error][]byte{
		loop.ErrDatagramTooLong: make([]byte, 70_000),
		loop.ErrAmplification:   []byte("0123456789"),
	} {
		bubble(t, func(t *testing.T) {
			var log bytes.Buffer
			srv := looptest.Start(t, &loop.Server{Addr: "udp://127.0.0.1:0", NumLoops: 1, Logger: zerolog.New(&log), Accept: func(c *loop.Conn) loop.Handler {
				if want == loop.ErrAmplification {
					c.LimitReplies(3)
				}
				a := handler.NewReplies(c, handler.RepliesConfig{})
				return loop.HandlerFunc(func(*loop.Conn, []byte) error {
					first := a.Later()
					err := a.Write([]byte("ok"))
					first.Done(reply)
					return err
				})
			}})
			p := srv.OpenUDP(0)
			p.Send("?")
			if got := p.Received(); !slices.Equal(got, []string{"ok"}) {
				t.Errorf("received %q, want only %q", got, "ok")
			}
			if got := log.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "a reply cannot be sent") || !strings.Contains(got, want.Error()) {
				t.Errorf("the log is %q, want one line with %v", got, want)
			}
		})
	}
}
