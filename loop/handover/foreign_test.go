//go:build unix

package handover_test

import (
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/handover"
)

// A noDeadline is a listener of a user's that knows no deadlines.
type noDeadline struct{ net.Listener }

// A deafDeadline has a SetDeadline that does nothing.
type deafDeadline struct{ net.Listener }

func (deafDeadline) SetDeadline(time.Time) error { return nil }

// foreign returns a listener of this kind, and where it listens.
func foreign[L net.Listener](t *testing.T, kind func(net.Listener) L) (net.Listener, net.Addr) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	return kind(ln), ln.Addr()
}

func foreigners(t *testing.T) map[string]func() (net.Listener, net.Addr) {
	return map[string]func() (net.Listener, net.Addr){
		"without SetDeadline": func() (net.Listener, net.Addr) {
			return foreign(t, func(ln net.Listener) noDeadline { return noDeadline{ln} })
		},
		"with a SetDeadline that does nothing": func() (net.Listener, net.Addr) {
			return foreign(t, func(ln net.Listener) deafDeadline { return deafDeadline{ln} })
		},
	}
}

// A handover does not wait for an Accept of the user's that no deadline ends. Its connections have no
// name here, and stay.
func TestForeignListenerHoldsUpNoHandover(t *testing.T) {
	for name, listen := range foreigners(t) {
		t.Run(name, func(t *testing.T) {
			cfg := handover.Config{Path: filepath.Join(t.TempDir(), "s")}
			a := lines("a")
			a.Drain.Delay = patience
			ln, addr := listen()
			a.Listeners = []loop.Listener{{AcceptFrom: ln}}
			if _, err := open(t, a, cfg); err != nil {
				t.Fatal(err)
			}
			c, stays := dial(t, a), dialAddr(t, addr)
			for _, c := range []*client{c, stays} {
				c.say("one\n")
				c.hears("a 1 one")
			}
			began := time.Now()
			n, err := open(t, lines("b"), cfg)
			if err != nil {
				t.Fatalf("after %v: %v", time.Since(began), err)
			}
			if took := time.Since(began); took > time.Second {
				t.Errorf("the handover takes %v, want less than 1s", took)
			}
			if n.report.Moved != 1 || n.report.Stayed["no address"] != 1 {
				t.Errorf("%+v, want 1 moved, and 1 stayed for want of an address", n.report)
			}
			c.say("two\n")
			c.hears("b 2 two")
			stays.say("two\n")
			stays.hears("a 2 two")
		})
	}
}

// A connection that such an Accept returns in a handover waits. If the handover fails, it is served.
func TestForeignNewcomerInAHandover(t *testing.T) {
	for name, listen := range foreigners(t) {
		t.Run(name, func(t *testing.T) {
			cfg := handover.Config{Path: filepath.Join(t.TempDir(), "s")}
			a, b := lines("a"), lines("b")
			ln, addr := listen()
			a.Listeners = []loop.Listener{{AcceptFrom: ln}}
			served := make(chan struct{}, 10)
			a.Accept = func(c *loop.Conn) loop.Handler {
				served <- struct{}{}
				return accept("a")(c)
			}
			if _, err := open(t, a, cfg); err != nil {
				t.Fatal(err)
			}
			for range 2 { // by then the second handover finds an Accept that was left in the first one
				c := dial(t, a)
				c.say("one\n")
				c.hears("a 1 one")
				<-served
				var comes *client
				b.NumLoops = 1
				b.Accept = func(*loop.Conn) loop.Handler { // of the rehearsal
					if comes == nil {
						comes = dialAddr(t, addr)
						comes.say("one\n")
						select {
						case <-served:
							t.Error("a newcomer is accepted in a handover")
						case <-time.After(100 * time.Millisecond):
						}
					}
					return nil
				}
				if _, err := open(t, b, cfg); err == nil {
					t.Fatal("a process that takes no connection takes over")
				}
				comes.hears("a 1 one")
				<-served
				for range 3 {
					c := dialAddr(t, addr)
					c.say("one\n")
					c.hears("a 1 one")
					<-served
				}
				b = lines("b")
			}
		})
	}
}

// A newcomer that such an Accept returns when all has moved is served until the drain ends it, as
// those that stay.
func TestForeignNewcomerAfterAHandover(t *testing.T) {
	cfg := handover.Config{Path: filepath.Join(t.TempDir(), "s"), State: &notebook{}}
	a, b := lines("a"), lines("b")
	a.Drain.Delay = patience
	ln, addr := foreign(t, func(ln net.Listener) noDeadline { return noDeadline{ln} })
	a.Listeners = []loop.Listener{{AcceptFrom: ln}}
	if _, err := open(t, a, cfg); err != nil {
		t.Fatal(err)
	}
	c, stays := dial(t, a), dialAddr(t, addr)
	c.say("one\n")
	c.hears("a 1 one")
	stays.say("one\n")
	stays.hears("a 1 one")
	var comes *client
	b.NumLoops = 1
	b.Accept = func(c *loop.Conn) loop.Handler {
		if comes == nil {
			comes = dialAddr(t, addr)
		}
		return accept("b")(c)
	}
	if _, err := open(t, b, cfg); err != nil {
		t.Fatal(err)
	}
	comes.say("one\n")
	comes.hears("a 1 one")
}
