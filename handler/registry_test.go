package handler_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/loopwheel/loopwheel/handler"
	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/looptest"
)

var errElsewhere = errors.New("logged in elsewhere")

// entering makes each line that a connection says a key of it; with a minus, it gives it back.
func entering(r *handler.Registry[string]) loop.Accept {
	return handler.Shared(loop.HandlerFunc(func(c *loop.Conn, msg []byte) error {
		if key, leaves := strings.CutPrefix(string(msg), "-"); leaves {
			return c.Send(fmt.Append(nil, r.Leave(key, c)))
		}
		_ = r.Enter(string(msg), c).Tell(func(old *loop.Conn) { old.CloseWithError(errElsewhere) })
		return nil
	}))
}

// wantKeys compares the keys that have a connection.
func wantKeys(t *testing.T, r *handler.Registry[string], want ...string) {
	t.Helper()
	got := slices.Sorted(maps.Keys(maps.Collect(r.All())))
	if !slices.Equal(got, want) || r.Len() != len(want) {
		t.Errorf("%d keys %q, want %q", r.Len(), got, want)
	}
}

func TestRegistry(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := handler.NewRegistry[string]()
		srv := startLines(t, 2, entering(r))
		wantKeys(t, r)
		if err := r.Get("lamp").Tell(func(*loop.Conn) {}); !errors.Is(err, loop.ErrClosed) {
			t.Errorf("who is not there is told: %v", err)
		}
		p, q := srv.Open(), srv.Open()
		p.Send("lamp\n", "lamp\n", "-door\n")
		wantReceived(t, p, "false\n") // and it did not close itself
		q.Send("door\n", "lamp\n", "-lamp\n", "lamp\n")
		wantReason(t, p, errElsewhere) // its end takes nothing from q
		wantKeys(t, r, "door", "lamp")
		wantReceived(t, q, "true\n")
		if err := r.Get("lamp").Tell(func(c *loop.Conn) { _ = c.Send([]byte("on")) }); err != nil {
			t.Error(err)
		}
		testkit.Pass(0)
		wantReceived(t, q, "on\n")
		q.Send("-door\n")
		wantKeys(t, r, "lamp")
		q.Reset()
		wantKeys(t, r)
	})
}

// A connection that has closed, or is refused, displaces nobody and does not stay.
func TestRegistryOfTheClosed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := handler.NewRegistry[string]()
		refuse := false
		srv := startLines(t, 1, func(c *loop.Conn) loop.Handler {
			if refuse {
				r.Enter("refused", c)
				return nil
			}
			return loop.HandlerFunc(echo)
		})
		p, q := srv.Open(), srv.Open()
		conns := connsOf(srv)
		srv.Do(0, func(*loop.Loop) { r.Enter("lamp", conns[0]) })
		q.Close()
		srv.Do(0, func(*loop.Loop) {
			for range 2 {
				if before := r.Enter("lamp", conns[1]); before != (loop.Ref{}) || r.Get("lamp") != conns[0].Ref() {
					t.Error("a connection that has closed took the key")
				}
			}
			if r.Leave("lamp", conns[1]) {
				t.Error("it has left")
			}
		})
		refuse = true
		srv.Open()
		wantKeys(t, r, "lamp")
		p.Close()
		wantKeys(t, r)
		if n := handler.Registered(r); n != 0 {
			t.Errorf("%d connections are kept account of", n)
		}
	})
}

// connsOf returns the connections of a server's first loop, in the order in which they were opened.
func connsOf(srv *looptest.Server) (conns []*loop.Conn) {
	srv.Do(0, func(l *loop.Loop) { conns = slices.Collect(l.Conns()) })
	slices.SortFunc(conns, func(a, b *loop.Conn) int { return int(a.ID()) - int(b.ID()) })
	return conns
}

// Many connections of all loops want the same few keys: each key has one in the end, and nobody who
// was replaced is left.
func TestRegistryUnderContention(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const keys, rounds = 5, 40
		r := handler.NewRegistry[string]()
		srv := startLines(t, 4, entering(r))
		var all sync.WaitGroup
		for i := range keys * 4 {
			all.Go(func() {
				for n := range rounds {
					p := srv.Open()
					p.Send(fmt.Sprintln((i + n) % keys))
					_ = r.Get(fmt.Sprint(n % keys)).Tell(func(c *loop.Conn) { _ = c.Send([]byte("hey")) })
					if n%3 == 0 {
						p.Close()
					}
				}
			})
		}
		all.Wait()
		testkit.Pass(0)
		if n := r.Len(); n > keys || n != srv.Stats().Conns || handler.Registered(r) != n {
			t.Errorf("%d keys have connections, %d are open, %d kept account of", n, srv.Stats().Conns, handler.Registered(r))
		}
	})
}
