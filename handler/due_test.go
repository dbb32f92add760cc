package handler_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/handler"
	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/looptest"
)

// An answer that has come in time counts, though the loop was blocked until after its time. One
// that is not there times out.
func TestCallsReadTheSocketFirst(t *testing.T) {
	for _, e := range []loop.Engine{loop.EngineDefault, loop.EngineEpoll, loop.EngineNet} {
		t.Run(fmt.Sprint(e), func(t *testing.T) {
			if e == loop.EngineEpoll && runtime.GOOS != "linux" {
				t.Skip("Linux only")
			}
			const n = 5
			results := make(chan error, 2)
			srv := &loop.Server{Addr: "tcp://127.0.0.1:0", Engine: e, NumLoops: 1, Codec: codec.Lines{}}
			srv.Accept = func(c *loop.Conn) loop.Handler {
				calls := handler.NewCalls[string](c, handler.CallConfig{})
				return loop.HandlerFunc(func(c *loop.Conn, msg []byte) error {
					if string(msg) != "begin" {
						calls.Answer(1+uint64(msg[0]-'0'), "")
						return nil
					}
					_, _ = calls.Begin(100*time.Millisecond, func(_ string, err error) { results <- err })
					_, _ = calls.Begin(100*time.Millisecond, func(_ string, err error) { results <- err })
					return c.Send([]byte("begun"))
				})
			}
			ctx, cancel := context.WithCancel(t.Context())
			if err := srv.Start(ctx); err != nil {
				t.Fatal(err)
			}
			defer func() { cancel(); _ = srv.Wait() }()
			for range n {
				client, err := net.Dial("tcp", srv.LocalAddr().String())
				if err != nil {
					t.Fatal(err)
				}
				fmt.Fprintln(client, "begin")
				if _, err := bufio.NewReader(client).ReadString('\n'); err != nil {
					t.Fatal(err)
				}
				blocked := make(chan struct{})
				_ = srv.Loops()[0].Post(func() { close(blocked); time.Sleep(200 * time.Millisecond) }) // its work
				<-blocked
				fmt.Fprintln(client, "0") // of the first call
				if err := testkit.Receive(t, "the first result", results); err != nil {
					t.Errorf("the call whose answer was there: %v, want nil", err)
				}
				if err := testkit.Receive(t, "the second result", results); !errors.Is(err, handler.ErrCallTimeout) {
					t.Errorf("the other call: %v, want ErrCallTimeout", err)
				}
				client.Close()
			}
		})
	}
}

// A peer that never stops sending does not keep a call from timing out.
func TestCallsTimeOutInAStream(t *testing.T) {
	bubble(t, func(t *testing.T) {
		k := newCaller(t, handler.CallConfig{})
		var took time.Duration
		k.do(func() {
			began := time.Now()
			_, _ = k.calls.Begin(100*time.Millisecond, func(string, error) { took = time.Since(began) })
		})
		for range 400 {
			k.peer.Send("x\n")
			testkit.Pass(time.Millisecond)
		}
		if took < 100*time.Millisecond || took > 150*time.Millisecond {
			t.Errorf("the call has ended after %v, want 100 to 150 ms", took)
		}
	})
}

// The drain waits for what is due, and as long as it is due: replies of another loop, without
// reading; calls and AskConnWait, which need the input. What is not due does not hold it.
func TestDrainWaitsForAnswers(t *testing.T) {
	answers := make(chan error, 1)
	for _, test := range []struct {
		name   string
		begin  func(t *testing.T, c *loop.Conn, reply *handler.Replies, calls *handler.Calls[string])
		says   string // 5 s later
		gets   string
		answer error // of AskConnWait
		takes  time.Duration
		reason error
	}{
		{"nothing", func(_ *testing.T, _ *loop.Conn, reply *handler.Replies, calls *handler.Calls[string]) {
			reply.Later().Done([]byte("x\n"))
			id, _ := calls.Begin(0, func(string, error) {})
			calls.Answer(id, "")
		}, "", "x\n", nil, 0, loop.ErrServerClosed},
		{"reply", func(_ *testing.T, c *loop.Conn, reply *handler.Replies, _ *handler.Calls[string]) {
			r := reply.Later()
			c.Loop().AfterFunc(10*time.Second, func() { r.Done([]byte("late\n")) })
		}, "echo\n", "late\n", nil, 10 * time.Second, loop.ErrServerClosed},
		{"two replies", func(_ *testing.T, c *loop.Conn, reply *handler.Replies, _ *handler.Calls[string]) {
			for i := range 2 {
				r := reply.Later()
				c.Loop().AfterFunc(time.Duration(10-i)*time.Second, func() { r.Done([]byte("late\n")) })
			}
		}, "", "late\nlate\n", nil, 10 * time.Second, loop.ErrServerClosed},
		{"call", func(_ *testing.T, c *loop.Conn, _ *handler.Replies, calls *handler.Calls[string]) {
			_, _ = calls.Begin(10*time.Second, func(a string, err error) { _ = c.Send(fmt.Append(nil, a, err)) })
		}, "call\n", "answered<nil>\n", nil, 5 * time.Second, loop.ErrServerClosed},
		{"call that times out", func(_ *testing.T, _ *loop.Conn, _ *handler.Replies, calls *handler.Calls[string]) {
			_, _ = calls.Begin(10*time.Second, func(string, error) {})
		}, "", "", nil, 10 * time.Second, loop.ErrServerClosed},
		{"AskConnWait", func(t *testing.T, c *loop.Conn, _ *handler.Replies, _ *handler.Calls[string]) {
			ref := c.Ref()
			go func() {
				_, err := handler.AskConnWait(t.Context(), ref, func(c *loop.Conn, a handler.Question[int]) {
					c.Loop().AfterFunc(10*time.Second, func() { go a.Answer(1) })
				})
				answers <- err
			}()
		}, "echo\n", "echo\n", nil, 10 * time.Second, loop.ErrServerClosed},
		{"reply that never comes", func(_ *testing.T, _ *loop.Conn, reply *handler.Replies, _ *handler.Calls[string]) {
			reply.Later()
		}, "", "", nil, time.Minute, loop.ErrServerClosed},
	} {
		t.Run(test.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				var began time.Time
				var took time.Duration
				srv := looptest.Start(t, &loop.Server{NumLoops: 1, Codec: codec.Lines{}, Drain: loop.Drain{Timeout: time.Minute}, Accept: func(c *loop.Conn) loop.Handler {
					reply, calls := handler.NewReplies(c, handler.RepliesConfig{}), handler.NewCalls[string](c, handler.CallConfig{})
					c.AfterClose(func(error) { took = time.Since(began) })
					return loop.HandlerFunc(func(c *loop.Conn, msg []byte) error {
						switch string(msg) {
						case "begin":
							test.begin(t, c, reply, calls)
						case "call":
							calls.Answer(1, "answered")
						default:
							return c.Send(msg)
						}
						return nil
					})
				}})
				p := srv.Open()
				p.Send("begin\n")
				began = time.Now()
				srv.Shutdown()
				testkit.Pass(5 * time.Second)
				if test.says != "" {
					p.Send(test.says)
				}
				_ = srv.Stop()
				if d := took.Round(100 * time.Millisecond); d != test.takes {
					t.Errorf("it was open for %v, want %v", d, test.takes)
				}
				wantReceived(t, p, test.gets)
				wantReason(t, p, test.reason)
				if strings.HasPrefix(test.name, "AskConnWait") {
					if err := <-answers; !errors.Is(err, test.answer) {
						t.Errorf("AskConnWait: %v, want %v", err, test.answer)
					}
				}
			})
		})
	}
}

// AskConnWait returns when the close begins, though output waits for the peer for longer.
func TestAskConnReturnsAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var conn *loop.Conn
		srv := startLines(t, 1, func(c *loop.Conn) loop.Handler { conn = c; return echoes(c) })
		p := srv.Open()
		p.Block(0)
		p.Send("unsent\n")
		began := time.Now()
		done := make(chan error)
		for range 2 {
			go func() {
				_, err := handler.AskConnWait(t.Context(), conn.Ref(), func(*loop.Conn, handler.Question[int]) {})
				done <- err
			}()
		}
		synctest.Wait()
		srv.Do(0, func(*loop.Loop) { conn.CloseWithError(io.ErrNoProgress) })
		for range 2 {
			if err := <-done; !errors.Is(err, loop.ErrClosed) || !errors.Is(err, io.ErrNoProgress) {
				t.Errorf("AskConnWait: %v, want ErrClosed and the reason", err)
			}
		}
		if took := time.Since(began); took > 0 {
			t.Errorf("AskConnWait returned after %v, want 0", took)
		}
		if p.Ended() {
			t.Error("the connection does not wait for its peer")
		}
		p.Unblock()
	})
}

// With Server.Debug.Strict what must be called on the loop panics elsewhere, as in package loop.
func TestStrict(t *testing.T) {
	bubble(t, func(t *testing.T) {
		registry := handler.NewRegistry[int]()
		group := handler.NewGroup(handler.GroupConfig{})
		calls := make(map[string]func())
		srv := &loop.Server{NumLoops: 1, Debug: loop.Debug{Strict: true}, Codec: codec.Lines{}}
		srv.Accept = func(c *loop.Conn) loop.Handler {
			l := c.Loop()
			replies, cs := handler.NewReplies(c, handler.RepliesConfig{}), handler.NewCalls[int](c, handler.CallConfig{})
			reply := replies.Later()
			pipe := handler.NewPipeline[int](c, handler.CallConfig{})
			redial := handler.LinkConfig{Addr: "tcp://127.0.0.1:1", Accept: echoes}
			link := handler.NewLink(l, redial)
			pool := handler.NewPool(l, handler.PoolConfig[int]{Link: handler.LinkConfig{Addr: "tcp://127.0.0.1:1"},
				Accept: func(c *loop.Conn, _ *handler.Calls[int]) loop.Handler { return echoes(c) }})
			done := func(int, error) {}
			nothing := func() {}
			var actor *handler.Actor[int]
			ref, _ := handler.Spawn(l, func(a *handler.Actor[int]) func(int) { actor = a; return func(int) {} })
			message := func(handler.Question[int]) int { return 0 }
			cancel := handler.Ask(l, ref, 0, message, done)
			for name, f := range map[string]func(){
				"NewCalls":            func() { handler.NewCalls[int](c, handler.CallConfig{}) },
				"Replies.Waiting":     func() { replies.Waiting() },
				"Replies.Write":       func() { _ = replies.Write(nil) },
				"Replies.Later":       func() { replies.Later() },
				"Replies.CloseAfter":  func() { replies.CloseAfter(nil) },
				"Replies.RunOn":       func() { _ = replies.RunOn(l, func(b []byte) []byte { return b }) },
				"Replies.StartOn":     func() { _ = replies.StartOn(l, func(func([]byte)) {}) },
				"Reply.Done":          func() { reply.Done(nil) },
				"Calls.Begin":         func() { _, _ = cs.Begin(0, done) },
				"Calls.BeginAs":       func() { _ = cs.BeginAs(7, 0, done) },
				"Calls.Answer":        func() { cs.Answer(0, 0) },
				"Calls.Cancel":        func() { cs.Cancel(0) },
				"Calls.Stats":         func() { cs.Stats() },
				"Pipeline.CallFunc":   func() { _, _ = pipe.CallFunc(0, nil, done) },
				"Pipeline.Call":       func() { _, _ = pipe.Call(0, nil, done) },
				"Pipeline.Answer":     func() { pipe.Answer(0) },
				"Pipeline.Cancel":     func() { pipe.Cancel(0) },
				"Pipeline.Unanswered": func() { pipe.Unanswered() },
				"Pipeline.Stats":      func() { pipe.Stats() },
				"NewLink":             func() { handler.NewLink(l, redial) },
				"Link.Conn":           func() { link.Conn() },
				"Link.Send":           func() { _ = link.Send(nil) },
				"Link.Stats":          func() { link.Stats() },
				"Link.Stop":           link.Stop,
				"Pool.Call":           func() { _ = pool.Call(0, func(b []byte, _ uint64) []byte { return b }, done) },
				"Pool.Stats":          func() { pool.Stats() },
				"Pool.Stop":           pool.Stop,
				"Registry.Enter":      func() { registry.Enter(1, c) },
				"Registry.Leave":      func() { registry.Leave(1, c) },
				"Group.Join":          func() { group.Join(c) },
				"Group.Leave":         func() { group.Leave(c) },
				"Group.Has":           func() { group.Has(c) },
				"Typed.Send":          func() { _ = handler.JSON[int]().Send(c, 1) },
				"Ask":                 func() { handler.Ask(l, ref, 0, message, done) },
				"Ask's cancel":        cancel,
				"Actor.OnStop":        func() { actor.OnStop(func(error) {}) },
				"Actor.AfterFunc":     func() { actor.AfterFunc(0, nothing) },
				"Actor.Every":         func() { actor.Every(1, nothing) },
				"a Log":               func() { handler.Log{}.Wrap(echoes)(c) },
				"a Limit":             func() { handler.Limit{PerSecond: 1}.Wrap(echoes)(c) },
				"a Heartbeat":         func() { handler.Heartbeat{Interval: time.Second}.Wrap(echoes)(c) },
			} {
				calls[name] = f
			}
			return echoes(c)
		}
		s := looptest.Start(t, srv)
		s.Open()
		for name, f := range calls {
			func() {
				defer func() {
					if text := fmt.Sprint(recover()); !strings.Contains(text, "called on goroutine") {
						t.Errorf("%s: panic %q, want one of the wrong goroutine", name, text)
					}
				}()
				f()
			}()
		}
		_ = s.Stop() // a reply is still due
	})
}
