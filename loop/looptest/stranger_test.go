package looptest_test

import (
	"bytes"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/looptest"
)

// A handler that looks at the IP of its peer, and a limit on those of one IP.
func TestPeersWithAddresses(t *testing.T) {
	banned := netip.MustParsePrefix("198.51.100.0/24")
	accept := func(c *loop.Conn) loop.Handler {
		if banned.Contains(c.RemoteAddr().(*net.TCPAddr).AddrPort().Addr()) {
			return nil
		}
		return loop.HandlerFunc(echo)
	}
	synctest.Test(t, func(t *testing.T) {
		srv := looptest.Start(t, &loop.Server{Codec: codec.Lines{}, Accept: accept, MaxConnsPerIP: 2, NumLoops: 2})
		if p := srv.OpenFrom(0, netip.MustParseAddrPort("198.51.100.7:1")); !p.Closed() || p.Ended() {
			t.Error("who is banned is let in")
		}
		ada := netip.MustParseAddrPort("192.0.2.1:5000")
		p, q := srv.OpenFrom(0, ada), srv.OpenFrom(0, ada)
		if p.Closed() || q.Closed() {
			t.Fatal("two of an address are refused")
		}
		if !srv.OpenFrom(0, ada).Closed() {
			t.Error("a third of the address is let in")
		}
		if got := p.Addr().String(); got != "192.0.2.1:5000" {
			t.Errorf("the peer is %v", got)
		}
		p.Close()
		if p.Reason() != io.EOF || q.Ended() {
			t.Errorf("closed with %v, and the other one: %v", p.Reason(), q.Ended())
		}
		if srv.OpenFrom(0, ada).Closed() {
			t.Error("nobody is let in in the place of who has gone")
		}
	})
}

// output is a test whose output can be looked at.
type output struct {
	testing.TB
	mu  sync.Mutex
	got bytes.Buffer
}

func (o *output) Output() io.Writer { return o }

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.got.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.got.String()
}

// panicsHere is what the stack must show.
func panicsHere(*loop.Conn, []byte) error { panic("what the author got wrong") }

// The test of a handler that panics says so, with the stack, though its server has no Logger.
func TestPanicIsInTheOutput(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := &output{TB: t}
		srv := looptest.Start(out, &loop.Server{
			Accept: func(*loop.Conn) loop.Handler { return loop.HandlerFunc(panicsHere) },
		})
		srv.Open().Send("x")
		got := out.String()
		if !strings.HasPrefix(got, "server: error: a callback panicked, conn 1, ") ||
			!strings.Contains(got, "panic what the author got wrong") || !strings.Contains(got, "panicsHere(0x") ||
			!strings.Contains(got, "\n\t") {
			t.Errorf("the output of the test is %q", got)
		}
		if err := srv.Stop(); err != nil {
			t.Error(err)
		}
	})
}
