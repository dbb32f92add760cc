package handler_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/handler"
	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/looptest"
)

// outcome is how a call ended, and when.
type outcome struct {
	answer string
	err    error
	at     time.Duration
}

// caller is a connection with calls, from the side that asks.
type caller struct {
	srv   *looptest.Server
	peer  *looptest.Peer
	conn  *loop.Conn
	calls *handler.Calls[string]
	pipe  *handler.Pipeline[string]
	start time.Time
	ended map[uint64][]outcome
}

// newCaller opens a connection whose calls are bounded by limits.
func newCaller(t *testing.T, limits handler.CallConfig) *caller {
	k := &caller{ended: make(map[uint64][]outcome), start: time.Now()}
	k.srv = startLines(t, 1, func(c *loop.Conn) loop.Handler {
		k.conn = c
		k.calls = handler.NewCalls[string](c, limits)
		k.pipe = handler.NewPipeline[string](c, limits)
		return loop.HandlerFunc(echo)
	})
	k.peer = k.srv.Open()
	return k
}

// do runs f on the loop.
func (k *caller) do(f func()) { k.srv.Do(0, func(*loop.Loop) { f() }) }

// note returns a done function for the call that key stands for.
func (k *caller) note(key *uint64) func(string, error) {
	return func(answer string, err error) {
		k.ended[*key] = append(k.ended[*key], outcome{answer, err, time.Since(k.start)})
	}
}

// begin begins a call with an id of its own.
func (k *caller) begin(t *testing.T, timeout time.Duration) uint64 {
	t.Helper()
	key := new(uint64)
	var err error
	if *key, err = k.calls.Begin(timeout, k.note(key)); err != nil {
		t.Errorf("Begin: %v", err)
	}
	return *key
}

func (k *caller) want(t *testing.T, id uint64, answer string, err error, at time.Duration) {
	t.Helper()
	got := k.ended[id]
	if len(got) != 1 || got[0].answer != answer || !errors.Is(got[0].err, err) || got[0].at != at {
		t.Errorf("call %d ended with %v, want %q, %v at %v, once", id, got, answer, err, at)
	}
}

func TestCallsEnd(t *testing.T) {
	bubble(t, func(t *testing.T) {
		k := newCaller(t, handler.CallConfig{Timeout: time.Second})
		var a, b, c, d uint64
		k.do(func() {
			a, b, c = k.begin(t, 0), k.begin(t, 3*time.Second), k.begin(t, 0)
			if a == 0 || a == b || !k.calls.Answer(b, "early") || k.calls.Answer(b, "again") {
				t.Errorf("ids %d and %d, or an answer was taken twice", a, b)
			}
			if !k.calls.Cancel(c) || k.calls.Cancel(c) || k.calls.Answer(c, "cancelled") {
				t.Error("a call was cancelled twice, or answered after that")
			}
		})
		testkit.Pass(time.Second)
		k.do(func() {
			if k.calls.Answer(a, "late") || k.calls.Answer(12345678, "never asked for") || k.calls.Answer(0, "") {
				t.Error("an answer was taken for which there is no call")
			}
			d = k.begin(t, 0)
		})
		k.peer.Close()
		k.want(t, a, "", handler.ErrCallTimeout, time.Second)
		k.want(t, a, "", os.ErrDeadlineExceeded, time.Second)
		k.want(t, b, "early", nil, 0)
		k.want(t, d, "", io.EOF, time.Second)
		if len(k.ended[c]) > 0 {
			t.Errorf("a cancelled call ended with %v", k.ended[c])
		}
		want := handler.CallStats{Begun: 4, Answered: 1, TimedOut: 1, Cancelled: 1, Failed: 1, Unmatched: 5}
		k.do(func() {
			testkit.Want(t, "Stats", k.calls.Stats(), want)
			if _, err := k.calls.Begin(0, func(string, error) { t.Error("called") }); err != io.EOF {
				t.Errorf("Begin after the end: %v", err)
			}
		})
	})
}

func TestCallsAfterClose(t *testing.T) {
	bubble(t, func(t *testing.T) {
		k := newCaller(t, handler.CallConfig{})
		var a uint64
		k.do(func() {
			a = k.begin(t, 0)
			k.conn.Close()
			if _, err := k.calls.Begin(0, func(string, error) { t.Error("called") }); err != loop.ErrClosed {
				t.Errorf("Begin after Close: %v", err)
			}
		})
		k.want(t, a, "", loop.ErrClosed, 0)
		k.do(func() {
			testkit.Want(t, "Stats().Pending", k.calls.Stats().Pending, 0)
			testkit.Want(t, "Stats().Begun", k.calls.Stats().Begun, 1)
		})
	})
}

// A late answer must not end the call that has the slot now, until the ids come round.
func TestCallsSlotsUsedAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		k := newCaller(t, handler.CallConfig{IDBits: 16, Max: 4, Timeout: time.Second})
		k.do(func() {
			seen := make(map[uint64]bool)
			for i := range 16000 {
				id := k.begin(t, 0)
				if seen[id] || id == 0 || id >= 1<<16 {
					t.Fatalf("call %d has id %d, which was used before or is out of range", i, id)
				}
				seen[id] = true
				k.calls.Cancel(id)
				if k.calls.Answer(id, "late") {
					t.Fatal("a late answer was taken")
				}
			}
		})
	})
}

// A request that cannot be sent has no place in the order: the answers after it are not shifted.
func TestPipelineCall(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var pipe *handler.Pipeline[string]
		var conn *loop.Conn
		srv := looptest.Start(t, &loop.Server{NumLoops: 1, Codec: panicky{codec.Lines{Max: 10}}, Accept: func(c *loop.Conn) loop.Handler {
			conn, pipe = c, handler.NewPipeline[string](c, handler.CallConfig{Timeout: time.Second, Max: 4})
			return loop.HandlerFunc(func(_ *loop.Conn, answer []byte) error { pipe.Answer(string(answer)); return nil })
		}})
		p := srv.Open()
		var ended []string
		call := func(request string, want error) (id uint64) {
			t.Helper()
			id, err := pipe.Call(0, []byte(request), func(answer string, err error) {
				ended = append(ended, fmt.Sprint(request, ": ", answer, " ", err))
			})
			if !errors.Is(err, want) || (id == 0) != (err != nil) {
				t.Errorf("%s: %d, %v, want %v", request, id, err, want)
			}
			return id
		}
		srv.Do(0, func(*loop.Loop) {
			call("a", nil)
			call("much too long", codec.ErrTooLong)
			b := call("b", nil)
			func() {
				defer func() {
					if recover() == nil {
						t.Error("no panic")
					}
				}()
				call("panic", nil)
			}()
			call("c", nil)
			call("d", nil)
			call("e", handler.ErrTooManyCalls)
			pipe.Cancel(b)
			testkit.Want(t, "Unanswered", pipe.Unanswered(), 4)
		})
		wantReceived(t, p, "a\nb\nc\nd\n")
		p.Send("A\nB\nC\nD\n")
		srv.Do(0, func(*loop.Loop) {
			testkit.Want(t, "ended", fmt.Sprint(ended), "[a: A <nil> c: C <nil> d: D <nil>]")
			testkit.Want(t, "Stats", pipe.Stats(), handler.CallStats{Begun: 6, Answered: 3, Cancelled: 3, Unmatched: 1})
			conn.Close()
			call("f", loop.ErrClosed)
		})
		testkit.Pass(time.Minute)
		testkit.Want(t, "ended in all", len(ended), 3)
	})
}

// A hook that begins a call while a request is refused costs the connection, or answers would be
// those of others.
func TestPipelineCallWithinCall(t *testing.T) {
	bubble(t, func(t *testing.T) {
		k := newCaller(t, handler.CallConfig{})
		k.peer.Block(0)
		k.do(func() {
			done := func(string, error) {}
			_ = k.conn.Send([]byte("waits"))
			k.conn.OnHighWater(0, func() { _, _ = k.pipe.Call(0, []byte("inner"), done) })
			if _, err := k.pipe.Call(0, []byte("two\nlines"), done); err == nil {
				t.Error("it was sent")
			}
			testkit.Want(t, "closing", k.conn.Ref().Tell(func(*loop.Conn) {}), loop.ErrClosed)
		})
		k.peer.Reset()
	})
}

// sent stands for a request that was sent.
func sent() error { return nil }

// A request of several writes: if one fails, the connection closes, and no answer comes to another
// call.
func TestPipelineCallFunc(t *testing.T) {
	for name, fail := range map[string]func() error{
		"an error": func() error { return io.ErrShortWrite },
		"a panic":  func() error { panic("send") },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				k := newCaller(t, handler.CallConfig{})
				write := func(s string) error { _, err := k.conn.Write([]byte(s)); return err }
				var whole uint64
				k.do(func() {
					whole, _ = k.pipe.CallFunc(0, func() error {
						return errors.Join(write("a"), write("b\n"))
					}, k.note(&whole))
				})
				testkit.Want(t, "request", k.peer.Received(), "ab\n")
				k.do(func() {
					defer func() { _ = recover() }()
					_, err := k.pipe.CallFunc(0, func() error {
						return errors.Join(write("half"), fail())
					}, func(string, error) { t.Error("done was called") })
					testkit.Want(t, "error", errors.Is(err, io.ErrShortWrite), true)
				})
				k.want(t, whole, "", loop.ErrClosed, 0)
			})
		})
	}
}

// panicky is a codec that cannot encode everything.
type panicky struct{ codec.Codec }

func (p panicky) AppendFrame(dst, msg []byte) ([]byte, error) {
	if string(msg) == "panic" {
		panic(string(msg))
	}
	return p.Codec.AppendFrame(dst, msg)
}

func TestPipelineOrder(t *testing.T) {
	bubble(t, func(t *testing.T) {
		k := newCaller(t, handler.CallConfig{Timeout: time.Second, Max: 20})
		ids := make([]uint64, 20)
		begin := func(i int, timeout time.Duration) {
			id, err := k.pipe.CallFunc(timeout, sent, func(answer string, err error) { k.note(&ids[i])(answer, err) })
			if err != nil {
				t.Errorf("call %d: %v", i, err)
			}
			ids[i] = id
		}
		k.do(func() {
			if k.pipe.Answer("unasked") {
				t.Error("an answer without a call was taken")
			}
			for i := range 20 {
				begin(i, time.Duration(1+i%2)*time.Second)
			}
			k.pipe.Cancel(ids[3])
			if _, err := k.pipe.CallFunc(0, sent, func(string, error) {}); err != handler.ErrTooManyCalls {
				t.Errorf("call 21: %v", err)
			}
		})
		testkit.Pass(time.Second) // those with even numbers are too late
		k.do(func() {
			for i := range 20 {
				if took, want := k.pipe.Answer(fmt.Sprint(i)), i%2 == 1 && i != 3; took != want {
					t.Errorf("answer %d taken: %v", i, took)
				}
			}
			if n := k.pipe.Unanswered(); n != 0 {
				t.Errorf("%d are unanswered", n)
			}
			want := handler.CallStats{Begun: 20, Answered: 9, TimedOut: 10, Cancelled: 1, Unmatched: 12}
			if got := k.pipe.Stats(); got != want {
				t.Errorf("%+v, want %+v", got, want)
			}
		})
		for i := range 20 {
			switch {
			case i%2 == 0:
				k.want(t, ids[i], "", handler.ErrCallTimeout, time.Second)
			case i != 3:
				k.want(t, ids[i], fmt.Sprint(i), nil, time.Second)
			}
		}
	})
}

// A hundred thousand calls are pending when the connection breaks: each done function runs, even
// after one that panics.
func TestCallsBreak(t *testing.T) {
	bubble(t, func(t *testing.T) {
		k := newCaller(t, handler.CallConfig{Max: 100_000})
		failed := 0
		k.do(func() {
			for i := range 100_000 {
				_, err := k.calls.Begin(0, func(_ string, err error) {
					if failed++; i == 500 {
						panic("done")
					}
					if _, err := k.calls.Begin(0, func(string, error) {}); err == nil {
						t.Error("a call was begun on a connection that has closed")
					}
				})
				if err != nil {
					t.Fatal(err)
				}
			}
		})
		k.peer.Reset()
		testkit.Want(t, "failed", failed, 100_000)
		k.do(func() {
			testkit.Want(t, "Stats().Failed", k.calls.Stats().Failed, 100_000)
			testkit.Want(t, "Stats().Pending", k.calls.Stats().Pending, 0)
		})
	})
}

// A panic in a done function interrupts work: the end is a reset.
func TestCallsPanicCloses(t *testing.T) {
	for name, end := range map[string]func(k *caller, id uint64){
		"a timeout": func(*caller, uint64) {},
		"an answer": func(k *caller, id uint64) {
			k.conn.Ref().Tell(func(*loop.Conn) { k.calls.Answer(id, "answer") })
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				k := newCaller(t, handler.CallConfig{Timeout: time.Second})
				var id uint64
				k.do(func() {
					id, _ = k.calls.Begin(0, func(string, error) { panic("done") })
				})
				end(k, id)
				testkit.Pass(time.Second)
				var p *loop.PanicError
				if !errors.As(k.peer.Reason(), &p) || !k.peer.WasReset() {
					t.Errorf("closed with %v, reset %v; want a PanicError, true", k.peer.Reason(), k.peer.WasReset())
				}
			})
		})
	}
}

func TestCallsMisuse(t *testing.T) {
	bubble(t, func(t *testing.T) {
		k := newCaller(t, handler.CallConfig{})
		k.do(func() {
			for what, limits := range map[string]handler.CallConfig{
				"negative timeout": {Timeout: -1},
				"no unit":          {Timeout: 30},
				"negative max":     {Max: -1},
				"short ids":        {IDBits: 4},
				"long ids":         {IDBits: 65},
				"max too large":    {IDBits: 8, Max: 200},
			} {
				wantPanic(t, what, func() { handler.NewCalls[int](k.conn, limits) })
			}
			wantPanic(t, "nil func", func() { _, _ = k.calls.Begin(0, nil) })
		})
	})
}

func TestCallsDoNotAllocate(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates; run it without -race, as README's go test does")
	}
	bubble(t, func(t *testing.T) {
		k := newCaller(t, handler.CallConfig{})
		done := func(string, error) {}
		round := func() {
			for range 10 {
				id, _ := k.calls.Begin(time.Minute, done)
				odd, _ := k.calls.Begin(time.Second, done)
				_, _ = k.pipe.CallFunc(time.Minute, sent, done)
				k.calls.Answer(id, "yes")
				k.calls.Answer(odd, "yes")
				k.pipe.Answer("yes")
			}
		}
		k.do(func() {
			if n := testing.AllocsPerRun(100, round); n > 0 {
				t.Errorf("%v allocations for 30 calls", n)
			}
		})
	})
}

// Beside calls that may take an hour each ends when it must.
func TestCallsBesideLongOnes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		k := newCaller(t, handler.CallConfig{Timeout: 10 * time.Second})
		var long, short []uint64
		for i := range 100 {
			k.do(func() {
				if i%40 == 0 {
					long = append(long, k.begin(t, time.Hour))
				}
			})
			k.do(func() { short = append(short, k.begin(t, 0)) })
			testkit.Pass(time.Millisecond)
		}
		testkit.Pass(2 * time.Hour)
		for i, id := range short {
			k.want(t, id, "", handler.ErrCallTimeout, 10*time.Second+time.Duration(i)*time.Millisecond)
		}
		for i, id := range long {
			k.want(t, id, "", handler.ErrCallTimeout, time.Hour+time.Duration(40*i)*time.Millisecond)
		}
	})
}

// Answers that are there when a blocked loop goes on count, however long they take.
func TestAnswersBehindABlockedLoop(t *testing.T) {
	for _, row := range []struct {
		calls, piece int
		each         time.Duration
	}{{300, 1 << 30, time.Millisecond}, {3000, 1 << 30, 100 * time.Microsecond}, {3000, 1000, 100 * time.Microsecond}} {
		bubble(t, func(t *testing.T) {
			srv := looptest.Start(t, &loop.Server{NumLoops: 1, Codec: codec.Lines{}, Accept: func(*loop.Conn) loop.Handler { return nil }})
			backend := srv.Backend("tcp", "db:1")
			answered := 0
			srv.Do(0, func(l *loop.Loop) {
				loop.Dialer{Codec: codec.Lines{}}.Dial(l, "tcp://db:1", func(c *loop.Conn, _ error) loop.Handler {
					calls := handler.NewCalls[string](c, handler.CallConfig{Timeout: time.Second})
					for range row.calls {
						id, _ := calls.Begin(0, func(_ string, err error) {
							if err == nil {
								answered++
							}
						})
						_ = c.Send(fmt.Append(nil, id))
					}
					return loop.HandlerFunc(func(_ *loop.Conn, msg []byte) error {
						time.Sleep(row.each) // what an answer takes
						id, _ := strconv.ParseUint(string(msg), 10, 64)
						calls.Answer(id, "")
						return nil
					})
				})
			})
			p := backend.Accept()
			requests := p.Received()
			resume := srv.Stall(0)
			time.Sleep(500 * time.Millisecond) // in virtual time
			for len(requests) > 0 {
				n := min(len(requests), row.piece)
				p.Send(requests[:n])
				requests = requests[n:]
			}
			time.Sleep(1500 * time.Millisecond)
			resume()
			srv.Sleep(5 * time.Second)
			if answered != row.calls {
				t.Errorf("%+v: %d calls were answered, want all", row, answered)
			}
		})
	}
}

// OnClose is the last callback: calls that are under way end before it.
func TestCallsEndBeforeOnClose(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var order []string
		srv := startLines(t, 1, func(c *loop.Conn) loop.Handler {
			calls, pipe := handler.NewCalls[string](c, handler.CallConfig{}), handler.NewPipeline[string](c, handler.CallConfig{})
			_, _ = calls.Begin(time.Hour, func(_ string, err error) { order = append(order, fmt.Sprint("call ", err)) })
			_, _ = pipe.CallFunc(time.Hour, sent, func(_ string, err error) { order = append(order, fmt.Sprint("pipeline ", err)) })
			c.AfterClose(func(error) { order = append(order, "AfterClose") })
			return closer{func() { order = append(order, "OnClose") }}
		})
		srv.Open().Close()
		testkit.Want(t, "order", fmt.Sprint(order), "[call EOF pipeline EOF OnClose AfterClose]")
	})
}

type closer struct{ closed func() }

func (closer) OnMessage(*loop.Conn, []byte) error { return nil }
func (c closer) OnClose(*loop.Conn, error)        { c.closed() }
