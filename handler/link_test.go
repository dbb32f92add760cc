package handler_test

import (
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
	"weak"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/handler"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/looptest"
)

// linked is a Link to a scripted backend.
type linked struct {
	t       *testing.T
	srv     *looptest.Server
	backend *looptest.Backend
	link    *handler.Link
	states  []string
}

func newLinked(t *testing.T, r handler.LinkConfig) *linked {
	k := &linked{t: t, srv: looptest.Start(t, &loop.Server{NumLoops: 1, Codec: codec.Lines{}, Accept: echoes})}
	k.backend = k.srv.Backend("tcp", "backend:1")
	r.Addr, r.Dialer.Codec = "tcp://backend:1", codec.Lines{}
	if r.Accept == nil {
		r.Accept = echoes
	}
	r.State = func(c *loop.Conn, err error) {
		if c != nil {
			k.states = append(k.states, "up")
		} else {
			k.states = append(k.states, fmt.Sprint(err))
		}
	}
	k.do(func() { k.link = handler.NewLink(k.srv.Loops()[0], r) })
	return k
}

func (k *linked) do(f func()) { k.srv.Do(0, func(*loop.Loop) { f() }) }

func (k *linked) send(msg string, want error) {
	k.t.Helper()
	k.do(func() {
		if err := k.link.Send([]byte(msg)); !errors.Is(err, want) {
			k.t.Errorf("Send(%q): %v, want %v", msg, err, want)
		}
	})
}

func TestLinkComesBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		k := newLinked(t, handler.LinkConfig{})
		for i := range 20 {
			k.srv.Sleep(time.Hour)
			p := k.backend.Accept()
			if p == nil {
				t.Fatalf("round %d: nobody dials", i)
			}
			p.Send("hello\n")
			wantReceived(t, p, "hello\n")
			k.send("news", nil)
			wantReceived(t, p, "news\n")
			p.Close()
			k.send("lost", handler.ErrAway)
		}
		k.do(k.link.Stop)
		k.srv.Sleep(time.Hour)
		if p := k.backend.Accept(); p != nil {
			t.Error("dialed after Stop")
		}
		if got := strings.Count(strings.Join(k.states, ","), "up,"+io.EOF.Error()); got != 20 {
			t.Errorf("states %v", k.states)
		}
		k.send("stopped", loop.ErrClosed)
	})
}

// The attempts come later and later, at random, and never more often than the bounds say.
func TestLinkBacksOff(t *testing.T) {
	bubble(t, func(t *testing.T) {
		k := newLinked(t, handler.LinkConfig{Min: time.Second, Max: 16 * time.Second})
		k.backend.Refuse(syscall.ECONNREFUSED)
		k.backend.Accept().Reset()
		k.srv.Sleep(1000 * time.Second)
		var st handler.LinkStats
		k.do(func() { st = k.link.Stats() })
		// With full jitter the mean is half of the bound: about 1000/8 attempts, of which few are
		// the first ones.
		if st.Dials < 90 || st.Dials > 180 || st.Opened != 1 || len(k.states) < 90 {
			t.Errorf("%+v in 1,000 s with at most 16 s between two", st)
		}
		if !strings.Contains(k.states[2], "connection refused") {
			t.Errorf("states %q", k.states[:3])
		}
		k.backend.Refuse(nil)
		k.srv.Sleep(16 * time.Second)
		p := k.backend.Accept()
		if p == nil {
			t.Fatal("does not come back")
		}
		k.srv.Sleep(16 * time.Second) // it has lasted: the next attempt is within a second
		p.Close()
		k.srv.Sleep(time.Second)
		if k.backend.Accept() == nil {
			t.Error("the back-off was not forgotten")
		}
		k.do(k.link.Stop)
	})
}

func TestLinkKeeps(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for _, tt := range []struct {
			drop bool
			last error
			want string
		}{{false, handler.ErrAway, "one\ntwo\n"}, {true, nil, "two\nthree\n"}} {
			k := newLinked(t, handler.LinkConfig{Backlog: 2, DropOldest: tt.drop})
			k.backend.Accept().Reset()
			k.backend.Refuse(syscall.EHOSTUNREACH)
			k.srv.Sleep(time.Second)
			k.send("one", nil)
			k.send("two", nil)
			k.send("three", tt.last)
			k.backend.Refuse(nil)
			k.srv.Sleep(time.Minute)
			p := k.backend.Accept()
			for q := p; q != nil; q = k.backend.Accept() {
				p = q
			}
			wantReceived(t, p, tt.want)
			k.do(k.link.Stop)
		}
	})
}

func TestLinkRefusedByOpen(t *testing.T) {
	bubble(t, func(t *testing.T) {
		opens := 0
		k := newLinked(t, handler.LinkConfig{Max: time.Second, Accept: func(c *loop.Conn) loop.Handler {
			if opens++; opens < 5 {
				return nil
			}
			return loop.HandlerFunc(echo)
		}})
		k.srv.Sleep(10 * time.Second)
		if opens != 5 || k.states[len(k.states)-1] != "up" {
			t.Errorf("%d calls of Open, states %v", opens, k.states)
		}
	})
}

func TestLinkEndsWithTheServer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		k := newLinked(t, handler.LinkConfig{})
		p := k.backend.Accept()
		if err := k.srv.Stop(); err != nil {
			t.Error(err)
		}
		if !p.Closed() || !strings.Contains(k.states[len(k.states)-1], "server closed") {
			t.Errorf("closed %v, states %v", p.Closed(), k.states)
		}
	})
}

// A handler may pass on that another server has closed: that is no reason to stay away.
func TestLinkBehindAnotherServersEnd(t *testing.T) {
	bubble(t, func(t *testing.T) {
		k := newLinked(t, handler.LinkConfig{Max: time.Second, Accept: func(c *loop.Conn) loop.Handler {
			return loop.HandlerFunc(func(*loop.Conn, []byte) error { return fmt.Errorf("the other: %w", loop.ErrServerClosed) })
		}})
		k.backend.Accept().Send("hello\n")
		k.srv.Sleep(2 * time.Second)
		again := k.backend.Accept()
		k.do(func() {
			if again == nil || k.link.Conn() == nil {
				t.Errorf("it is not dialed again, states %v", k.states)
			}
			k.link.Stop()
		})
	})
}

func TestLinkMisuse(t *testing.T) {
	const addr = "tcp://127.0.0.1:1"
	for want, r := range map[string]handler.LinkConfig{
		"handler: LinkConfig.Accept is nil":                                            {Addr: addr},
		"handler: LinkConfig with a negative Min, Max or Backlog":                      {Addr: addr, Accept: echoes, Min: -1},
		"handler: LinkConfig with a Max below Min":                                     {Addr: addr, Accept: echoes, Min: 2 * time.Second, Max: time.Second},
		"handler: LinkConfig.Max is 60µs: is the unit missing?":                        {Addr: addr, Accept: echoes, Max: 60_000},
		"handler: LinkConfig: loop: Dialer.Timeout is 10ns: is the unit missing?":      {Addr: addr, Accept: echoes, Dialer: loop.Dialer{Timeout: 10}},
		"handler: LinkConfig with a negative":                                          {Addr: addr, Accept: echoes, Backlog: -1},
		`handler: LinkConfig: loop: Dialer.Dial "db:5432": no scheme`:                  {Addr: "db:5432", Accept: echoes},
		"handler: LinkConfig: loop: Dialer.Codec: codec: bad configuration: Lines.Max": {Addr: addr, Accept: echoes, Dialer: loop.Dialer{Codec: codec.Lines{Max: -1}}},
	} {
		func() {
			defer func() {
				if v := recover(); !strings.HasPrefix(fmt.Sprint(v), want) {
					t.Errorf("panicked with %v, want %s", v, want)
				}
			}()
			handler.NewLink(nil, r)
		}()
	}
}

// A kept message that the codec refuses gives way to those after it: no connection would take it.
func TestLinkKeepsNothingThatCannotBeSent(t *testing.T) {
	bubble(t, func(t *testing.T) {
		k := newLinked(t, handler.LinkConfig{Backlog: 3})
		k.backend.Accept().Reset()
		k.backend.Refuse(syscall.EHOSTUNREACH)
		k.srv.Sleep(time.Second)
		k.send("one", nil)
		k.send("two\nlines", nil)
		k.send("three", nil)
		k.backend.Refuse(nil)
		k.srv.Sleep(time.Minute)
		wantReceived(t, k.backend.Accept(), "one\nthree\n")
		k.do(func() {
			if st := k.link.Stats(); st.Backlog != 0 || st.Dropped != 1 {
				t.Errorf("%+v, want none kept and one dropped", st)
			}
		})
	})
}

// keep has the backend be away while n messages are sent, and come back.
func (k *linked) keep(n int, msg string) {
	k.backend.Accept().Reset()
	k.backend.Refuse(syscall.EHOSTUNREACH)
	k.srv.Sleep(time.Second)
	for range n {
		k.send(msg, nil)
	}
	k.backend.Refuse(nil)
	k.srv.Sleep(time.Minute)
}

// Much that was kept goes out as fast as the peer takes it: none of it is lost to the limit of what
// may be pending, and what is sent meanwhile stays after it.
func TestLinkKeepsMuch(t *testing.T) {
	bubble(t, func(t *testing.T) {
		k := newLinked(t, handler.LinkConfig{Backlog: 3000})
		want := strings.Repeat("x", 1<<10)
		k.keep(3000, want)
		p, got := k.backend.Accept(), ""
		k.send("last", nil)
		for range 100 {
			got += p.Received()
			k.srv.Sleep(time.Second)
		}
		if want = strings.Repeat(want+"\n", 3000) + "last\n"; got != want {
			t.Errorf("%d bytes arrived, want %d", len(got), len(want))
		}
		k.send("now", nil)
		wantReceived(t, p, "now\n")
	})
}

// A panic in State costs that call, not the link.
func TestLinkStatePanics(t *testing.T) {
	bubble(t, func(t *testing.T) {
		srv := looptest.Start(t, &loop.Server{NumLoops: 1})
		backend := srv.Backend("tcp", "backend:1")
		backend.Refuse(syscall.ECONNREFUSED)
		srv.Do(0, func(l *loop.Loop) {
			handler.NewLink(l, handler.LinkConfig{Addr: "tcp://backend:1", Accept: echoes, State: func(c *loop.Conn, err error) {
				if err != nil {
					panic("on purpose")
				}
			}})
		})
		srv.Sleep(time.Second)
		backend.Refuse(nil)
		srv.Sleep(time.Minute)
		p := backend.Accept()
		if p == nil {
			t.Fatal("does not come back after State has panicked")
		}
		p.Reset()
		srv.Sleep(time.Minute)
		if backend.Accept() == nil {
			t.Error("does not come back after State has panicked at the end of a connection")
		}
	})
}

// Open may find out that the link is not wanted any more.
func TestLinkStopInOpen(t *testing.T) {
	bubble(t, func(t *testing.T) {
		srv := looptest.Start(t, &loop.Server{NumLoops: 1})
		backend := srv.Backend("tcp", "backend:1")
		var link *handler.Link
		srv.Do(0, func(l *loop.Loop) {
			link = handler.NewLink(l, handler.LinkConfig{Addr: "tcp://backend:1", Accept: func(c *loop.Conn) loop.Handler {
				link.Stop()
				return echoes(c)
			}})
		})
		srv.Sleep(time.Minute)
		if backend.Accept() == nil || backend.Accept() != nil {
			t.Error("it did not dial once")
		}
		if n := srv.Stats().Conns; n != 0 {
			t.Errorf("a link that was stopped has %d connections", n)
		}
	})
}

// A link that was stopped leaves nothing behind on its loop, which may have many in its life.
func TestLinkLeavesNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		srv := looptest.Start(t, &loop.Server{NumLoops: 1})
		srv.Backend("tcp", "backend:1")
		var link weak.Pointer[handler.Link]
		srv.Do(0, func(l *loop.Loop) {
			k := handler.NewLink(l, handler.LinkConfig{Addr: "tcp://backend:1", Accept: echoes})
			link = weak.Make(k)
			k.Stop()
		})
		srv.Sleep(time.Minute)
		runtime.GC()
		if link.Value() != nil {
			t.Error("a link that was stopped is still in memory")
		}
	})
}
