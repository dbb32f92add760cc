package loop_test

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/looptest"
)

// OnStart is the first thing on each loop, also if another loop's posts to it.
func TestOnStartIsFirst(t *testing.T) {
	for range 100 {
		onStartRound(t)
	}
}

func onStartRound(t *testing.T) {
	var began [8]atomic.Bool
	var early, posted atomic.Int64
	srv := &loop.Server{NumLoops: len(began), Accept: silent}
	srv.OnStart = func(l *loop.Loop) {
		for i, other := range srv.Loops() {
			if err := other.Post(func() {
				other.AfterFunc(1, func() {}) // which checks that this is the loop
				posted.Add(1)
				if !began[i].Load() {
					early.Add(1)
				}
			}); err != nil {
				t.Error(err)
			}
		}
		began[l.Index()].Store(true)
	}
	synctest.Test(t, func(t *testing.T) {
		s := looptest.Start(t, srv)
		if n := len(began) * len(began); posted.Load() != int64(n) || early.Load() != 0 || s.Stats().Panics != 0 {
			t.Errorf("%d of %d posted, %d before OnStart, %d panics", posted.Load(), n, early.Load(), s.Stats().Panics)
		}
	})
}

// A panic in OnStart makes Start fail. What was posted with a nil error before that runs all the
// same, the loops that had started are stopped, and no goroutine is left, or the bubble would
// complain.
func TestOnStartPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var j journal
		srv := &loop.Server{
			NumLoops: 3,
			Accept:   silent,
			OnStart: func(l *loop.Loop) {
				if err := l.Post(func() { j.add("posted") }); err != nil {
					j.add(err.Error())
				}
				if l.Index() == 1 {
					panic(errors.New("no database"))
				}
			},
			OnStop: func(l *loop.Loop) { j.add("stop") },
		}
		_, err := looptest.TryStart(t, srv)
		if err == nil || !strings.Contains(err.Error(), "OnStart") || !strings.Contains(err.Error(), "no database") {
			t.Errorf("Start: %v", err)
		}
		var pe *loop.PanicError
		if !errors.As(err, &pe) || len(pe.Stack) == 0 {
			t.Errorf("Start: %#v, want a *PanicError in it", err)
		}
		slices.Sort(j.entries)
		j.expect(t, "posted", "posted", "posted", "stop", "stop")
		if srv.LocalAddr() != nil || srv.Addrs() != nil || srv.Wait() == nil {
			t.Error("a server that did not start has an address, or can be waited for")
		}
		for _, l := range srv.Loops() {
			if err := l.Post(func() {}); !errors.Is(err, loop.ErrServerClosed) {
				t.Errorf("Post on a loop that did not start: %v", err)
			}
		}
	})
}

func TestOnStartBeforeConnections(t *testing.T) {
	srv := &loop.Server{Addr: "tcp://127.0.0.1:0", NumLoops: 2}
	var mu sync.Mutex
	ready := make(map[*loop.Loop]bool)
	srv.OnStart = func(l *loop.Loop) {
		mu.Lock()
		defer mu.Unlock()
		ready[l] = true
	}
	srv.Accept = func(c *loop.Conn) loop.Handler {
		mu.Lock()
		defer mu.Unlock()
		if len(ready) != 2 {
			t.Error("a connection before OnStart of all loops")
		}
		return loop.HandlerFunc(echo)
	}
	addr := start(t, srv)
	for range 10 {
		mustEcho(t, dial(t, addr), "x")
	}
}

func TestBeforeAndAfterStart(t *testing.T) {
	srv := &loop.Server{NumLoops: 3, Listeners: []loop.Listener{{Addr: "tcp://127.0.0.1:0"}}}
	if srv.LocalAddr() != nil || srv.Addrs() != nil || len(srv.Loops()) != 0 || srv.Stats().Conns != 0 {
		t.Error("a Server has something before Start")
	}
	if err := srv.Wait(); err == nil || !strings.Contains(err.Error(), "Wait") {
		t.Errorf("Wait before Start: %v", err)
	}
	bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
		if a := srv.Addrs(); len(a) != 2 || a[0] != srv.LocalAddr() || a[1] == a[0] {
			t.Errorf("addresses %v, %v", srv.LocalAddr(), a)
		}
		loops := srv.Loops()
		for i, l := range loops {
			if l.Index() != i {
				t.Errorf("loop %d has index %d", i, l.Index())
			}
		}
		loops[0] = nil
		if len(srv.Loops()) != 3 || srv.Loops()[0] == nil {
			t.Error("Loops returned its own slice")
		}
		if err := srv.Start(t.Context()); err == nil || !strings.Contains(err.Error(), "Start") {
			t.Errorf("Start again: %v", err)
		}
	})
}

// Stats may be asked for at any time, by a goroutine that does not know whether the server runs.
func TestStatsWhileStarting(t *testing.T) {
	srv := &loop.Server{NumLoops: 4, Accept: silent}
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
				_, _ = srv.Stats(), srv.Loops()
				_, _ = srv.LocalAddr(), srv.Addrs()
			}
		}
	}()
	start(t, srv)
	close(stop)
	<-done
}

func TestListenersInherit(t *testing.T) {
	own := false
	srv := &loop.Server{
		Codec:       codec.Lines{},
		IdleTimeout: time.Minute,
		Accept:      func(*loop.Conn) loop.Handler { return loop.HandlerFunc(echo) },
		Listeners: []loop.Listener{
			{Addr: "tcp://127.0.0.1:0"},
			{Addr: "unix:///tmp/never-made.sock", Codec: codec.Raw{}, IdleTimeout: time.Hour,
				Accept: func(*loop.Conn) loop.Handler { own = true; return loop.HandlerFunc(echo) }},
			{Addr: "tcp://127.0.0.1:0", IdleTimeout: -1},
		},
	}
	bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
		inherits := srv.OpenTo(1)
		if inherits.Send("a", "b\n"); own || inherits.Received() != "ab\n" {
			t.Error("Codec or Accept is not the Server's")
		}
		has, never := srv.OpenTo(2), srv.OpenTo(3)
		if has.Send("a", "b\n"); !own || has.Writes() != 2 {
			t.Error("Codec or Accept is not the Listener's own")
		}
		wait(2 * time.Minute)
		if !errors.Is(inherits.Reason(), loop.ErrIdle) || has.Ended() {
			t.Error("the idle timeouts are not right")
		}
		wait(time.Hour)
		if !errors.Is(has.Reason(), loop.ErrIdle) {
			t.Error("the Listener's idle timeout is not right")
		}
		if wait(100 * time.Hour); never.Ended() {
			t.Errorf("the Listener without an idle timeout closed its connection with %v", never.Reason())
		}
	})
}
