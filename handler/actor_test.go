package handler_test

import (
	"errors"
	"io"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"
	"weak"

	"github.com/loopwheel/loopwheel/handler"
	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/looptest"
)

// diary is the state of an actor that notes what happens to it.
type diary struct {
	got     []int
	stopped []error
}

func (d *diary) start(a *handler.Actor[int]) func(int) {
	a.OnStop(func(err error) { d.stopped = append(d.stopped, err) })
	return func(n int) {
		switch n {
		case -1:
			a.Stop()
		case -2:
			panic("receive")
		}
		d.got = append(d.got, n)
	}
}

func spawn[M any](t *testing.T, l *loop.Loop, start func(*handler.Actor[M]) func(M)) handler.ActorRef[M] {
	t.Helper()
	a, err := handler.Spawn(l, start)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func wantTell[M any](t *testing.T, a handler.ActorRef[M], m M, want error) {
	t.Helper()
	if err := a.Tell(m); !errors.Is(err, want) {
		t.Errorf("Tell: %v, want %v", err, want)
	}
}

func (d *diary) want(t *testing.T, got []int, stopped ...error) {
	t.Helper()
	same := slices.EqualFunc(d.stopped, stopped, func(a, b error) bool { return errors.Is(a, b) })
	if !slices.Equal(d.got, got) || !same {
		t.Errorf("received %v and stopped with %v, want %v and %v", d.got, d.stopped, got, stopped)
	}
}

func TestActorTell(t *testing.T) {
	bubble(t, func(t *testing.T) {
		srv := startLines(t, 2, silent)
		var d diary
		a := spawn(t, srv.Loops()[1], d.start)
		for n := range 5 {
			wantTell(t, a, n, nil)
		}
		testkit.Pass(0)
		d.want(t, []int{0, 1, 2, 3, 4})
		srv.Do(1, func(l *loop.Loop) {
			if _, _, actors := handler.Tracked(l); actors != 1 {
				t.Errorf("%d actors live, want 1", actors)
			}
		})
		a.Stop()
		a.Stop()
		a.StopWithError(io.EOF)
		wantTell(t, a, 5, handler.ErrStopped)
		testkit.Pass(0)
		d.want(t, []int{0, 1, 2, 3, 4}, nil)
		srv.Do(1, func(l *loop.Loop) {
			if _, _, actors := handler.Tracked(l); actors != 0 {
				t.Errorf("%d actors live after Stop", actors)
			}
		})
	})
}

// Messages that wait when the actor is stopped are not received; the one that stops it is received
// to its end.
func TestActorStopDrops(t *testing.T) {
	bubble(t, func(t *testing.T) {
		srv := startLines(t, 1, silent)
		var inside, outside diary
		a, b := spawn(t, srv.Loops()[0], inside.start), spawn(t, srv.Loops()[0], outside.start)
		testkit.Pass(0)
		resume := srv.Stall(0)
		for _, n := range []int{1, -1, 2} {
			a.Tell(n)
			b.Tell(n + 10)
		}
		b.StopWithError(io.EOF)
		resume()
		inside.want(t, []int{1, -1}, nil)
		outside.want(t, nil, io.EOF)
	})
}

func TestActorPanic(t *testing.T) {
	bubble(t, func(t *testing.T) {
		srv := startLines(t, 1, silent)
		l := srv.Loops()[0]
		var d, other diary
		a, b := spawn(t, l, d.start), spawn(t, l, other.start)
		for _, n := range []int{1, -2, 2} {
			a.Tell(n)
			b.Tell(n + 10)
		}
		testkit.Pass(0)
		if len(d.stopped) != 1 {
			t.Fatalf("stopped with %v", d.stopped)
		}
		var p *loop.PanicError
		if !errors.As(d.stopped[0], &p) || p.Value != "receive" || len(p.Stack) == 0 {
			t.Errorf("stopped with %v, want the panic", d.stopped[0])
		}
		if !slices.Equal(d.got, []int{1}) {
			t.Errorf("received %v", d.got)
		}
		other.want(t, []int{11, 8, 12})
		wantTell(t, a, 3, handler.ErrStopped)
		if n := srv.Stats().Panics; n != 1 {
			t.Errorf("%d panics counted, want 1", n)
		}
	})
}

// A panic in start, or a nil result, stops the actor, and messages sent in between are dropped.
func TestActorStartFails(t *testing.T) {
	starts := map[string]func(*handler.Actor[int]) func(int){
		"panic": func(*handler.Actor[int]) func(int) { panic("start") },
		"nil":   func(*handler.Actor[int]) func(int) { return nil },
	}
	for name, start := range starts {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				srv := startLines(t, 1, silent)
				resume := srv.Stall(0)
				a := spawn(t, srv.Loops()[0], start)
				wantTell(t, a, 1, nil)
				resume()
				wantTell(t, a, 1, handler.ErrStopped)
				if n := srv.Stats().Panics; n != 1 {
					t.Errorf("%d panics counted, want 1", n)
				}
			})
		})
	}
}

// Stopped before it has started, an actor never starts.
func TestActorStoppedAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		srv := startLines(t, 1, silent)
		resume := srv.Stall(0)
		a := spawn(t, srv.Loops()[0], func(*handler.Actor[int]) func(int) {
			t.Error("started")
			return nil
		})
		a.Stop()
		resume()
		wantTell(t, a, 1, handler.ErrStopped)
	})
}

func TestActorOnStop(t *testing.T) {
	bubble(t, func(t *testing.T) {
		srv := startLines(t, 1, silent)
		var order []string
		var inside *handler.Actor[int]
		note := func(s string) func(error) { return func(error) { order = append(order, s) } }
		a := spawn(t, srv.Loops()[0], func(a *handler.Actor[int]) func(int) {
			inside = a
			a.OnStop(note("first"))
			a.OnStop(func(error) { panic("OnStop") })
			a.OnStop(func(error) {
				note("third")(nil)
				a.OnStop(note("added late"))
				if a.AfterFunc(0, func() { t.Error("a timer after the end") }) != (loop.Timer{}) || a.Every(1, func() {}) != (loop.Timer{}) {
					t.Error("a timer was set after the end")
				}
				wantTell(t, a.Ref(), 1, handler.ErrStopped)
			})
			return func(int) {}
		})
		testkit.Pass(0)
		a.Stop()
		testkit.Pass(time.Second)
		srv.Do(0, func(l *loop.Loop) { inside.OnStop(note("at once")) })
		if want := []string{"first", "third", "added late", "at once"}; !slices.Equal(order, want) {
			t.Errorf("order %q, want %q", order, want)
		}
		if n := srv.Stats().Panics; n != 1 {
			t.Errorf("%d panics counted", n)
		}
	})
}

// The end of the server stops the actors, after OnStop of the server, and after the messages that
// connections sent them when they closed.
func TestActorServerCloses(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var d diary
		var a handler.ActorRef[int]
		srv := looptest.Start(t, &loop.Server{
			NumLoops: 1,
			OnStart:  func(l *loop.Loop) { a, _ = handler.Spawn(l, d.start) },
			OnStop:   func(*loop.Loop) { d.got = append(d.got, 100) },
			Accept: func(c *loop.Conn) loop.Handler {
				c.AfterClose(func(error) { a.Tell(int(c.ID())) })
				return loop.HandlerFunc(echo)
			},
		})
		open(srv, 3)
		wantTell(t, a, 0, nil)
		if err := srv.Stop(); err != nil {
			t.Error(err)
		}
		slices.Sort(d.got)
		d.want(t, []int{0, 1, 2, 3, 100}, loop.ErrServerClosed)
		wantTell(t, a, 4, handler.ErrStopped)
		a.Stop()
		if _, err := handler.Spawn(srv.Loops()[0], d.start); !errors.Is(err, loop.ErrServerClosed) {
			t.Errorf("Spawn after the end: %v", err)
		}
	})
}

// An actor that was stopped in Server.OnStop, when Post is over, still runs its OnStop, with that
// reason.
func TestActorStoppedInServerOnStop(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var d diary
		var a handler.ActorRef[int]
		srv := looptest.Start(t, &loop.Server{
			NumLoops: 1,
			Accept:   silent,
			OnStart:  func(l *loop.Loop) { a, _ = handler.Spawn(l, d.start) },
			OnStop:   func(*loop.Loop) { a.StopWithError(io.EOF) },
		})
		if err := srv.Stop(); err != nil {
			t.Error(err)
		}
		d.want(t, nil, io.EOF)
	})
}

// A full mailbox takes an actor's messages, and a new actor, in their order.
func TestActorMailboxFull(t *testing.T) {
	bubble(t, func(t *testing.T) {
		srv := looptest.Start(t, &loop.Server{NumLoops: 1, Limits: loop.Limits{MaxMailbox: 3}, Accept: silent})
		var d diary
		a := spawn(t, srv.Loops()[0], d.start)
		testkit.Pass(0)
		resume := srv.Stall(0)
		for n := range 10 {
			wantTell(t, a, n, nil)
		}
		if _, err := handler.Spawn(srv.Loops()[0], d.start); err != nil {
			t.Errorf("Spawn: %v, want nil", err)
		}
		a.Stop()
		testkit.Pass(time.Second)
		d.want(t, nil)
		resume()
		testkit.Pass(time.Second)
		d.want(t, nil, nil)
	})
}

// ActorRefs can be compared, be keys of maps, and travel in messages. Actors spawn others and talk
// to them.
func TestActorRefs(t *testing.T) {
	bubble(t, func(t *testing.T) {
		type question struct {
			n      int
			answer handler.ActorRef[int]
		}
		srv := startLines(t, 2, silent)
		var d diary
		asker := spawn(t, srv.Loops()[0], d.start)
		doubler := spawn(t, srv.Loops()[1], func(a *handler.Actor[question]) func(question) {
			return func(q question) { q.answer.Tell(2 * q.n) }
		})
		doubler.Tell(question{21, asker})
		testkit.Pass(0)
		d.want(t, []int{42})
		var none handler.ActorRef[int]
		none.Stop()
		wantTell(t, none, 1, handler.ErrStopped)
		if asker == none || len(map[handler.ActorRef[int]]bool{asker: true, none: true, asker: true}) != 2 {
			t.Error("ActorRefs do not compare")
		}
	})
}

// Many goroutines: each sender's messages come in its order, one at a time.
func TestActorConcurrency(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const senders, each = 8, 200
		srv := startLines(t, 2, silent)
		var next [senders]int
		busy := false
		a := spawn(t, srv.Loops()[0], func(*handler.Actor[[2]int]) func([2]int) {
			return func(m [2]int) {
				if busy || next[m[0]] != m[1] {
					t.Errorf("busy %v, message %v, want number %d", busy, m, next[m[0]])
				}
				busy = true
				next[m[0]]++
				busy = false
			}
		})
		var wg sync.WaitGroup
		for i := range senders {
			wg.Go(func() {
				for n := range each {
					a.Tell([2]int{i, n})
				}
			})
		}
		wg.Wait()
		testkit.Pass(0)
		for i, n := range next {
			if n != each {
				t.Errorf("sender %d: %d messages", i, n)
			}
		}
	})
}

// The address of a stopped actor does not keep its state alive.
func TestActorForgets(t *testing.T) {
	bubble(t, func(t *testing.T) {
		srv := startLines(t, 1, silent)
		var state weak.Pointer[diary]
		a := spawn(t, srv.Loops()[0], func(a *handler.Actor[int]) func(int) {
			d := &diary{got: make([]int, 100)}
			state = weak.Make(d)
			a.AfterFunc(24*time.Hour, func() { d.got = nil })
			a.Every(time.Second, func() { d.got[0]++ })
			return d.start(a)
		})
		testkit.Pass(10 * time.Second)
		a.Stop()
		testkit.Pass(time.Second)
		srv.Do(0, func(*loop.Loop) {}) // the mailbox forgets its last batch
		runtime.GC()
		if state.Value() != nil {
			t.Error("the state is still there")
		}
		runtime.KeepAlive(a)
	})
}

func TestActorMisuse(t *testing.T) {
	wantPanic(t, "nil Loop", func() { handler.Spawn[int](nil, func(*handler.Actor[int]) func(int) { return nil }) })
	wantPanic(t, "nil start", func() { handler.Spawn[int](new(loop.Loop), nil) })
	bubble(t, func(t *testing.T) {
		srv := startLines(t, 1, silent)
		spawn(t, srv.Loops()[0], func(a *handler.Actor[int]) func(int) {
			wantPanic(t, "OnStop(nil)", func() { a.OnStop(nil) })
			wantPanic(t, "AfterFunc(nil)", func() { a.AfterFunc(1, nil) })
			wantPanic(t, "Every(nil)", func() { a.Every(1, nil) })
			return func(int) {}
		})
		testkit.Pass(0)
	})
}
