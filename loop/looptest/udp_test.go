package looptest_test

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/looptest"
)

func udpEcho() *loop.Server {
	return &loop.Server{Addr: "udp://127.0.0.1:0", NumLoops: 2, IdleTimeout: time.Minute,
		Accept: func(*loop.Conn) loop.Handler { return loop.HandlerFunc(echo) }}
}

func TestUDPSessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := looptest.Start(t, udpEcho())
		p, q := srv.OpenUDP(0), srv.OpenUDP(0)
		p.Send("a", "", "b")
		q.Send("c")
		if got := p.Received(); !slices.Equal(got, []string{"a", "", "b"}) {
			t.Errorf("received %q", got)
		}
		if got := q.Received(); !slices.Equal(got, []string{"c"}) {
			t.Errorf("received %q", got)
		}
		srv.Sleep(59 * time.Second)
		p.Send("still here")
		srv.Sleep(2 * time.Second)
		if st := srv.Stats(); st.Conns != 1 || st.ClosedBy["idle"] != 1 {
			t.Errorf("%d sessions, %d evicted", st.Conns, st.ClosedBy["idle"])
		}
		srv.Sleep(time.Minute)
		if st := srv.Stats(); st.Conns != 0 || st.Timers != 0 {
			t.Errorf("%d sessions, %d timers", st.Conns, st.Timers)
		}
	})
}

// A hundred thousand sessions, of which each ends when its own minute is over.
func TestUDPSessionsIdleOutInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 2000
		srv := udpEcho()
		var ended []int
		srv.NumLoops = 1
		srv.Accept = func(c *loop.Conn) loop.Handler {
			i := int(c.ID())
			c.AfterClose(func(error) { ended = append(ended, i) })
			return loop.HandlerFunc(echo)
		}
		s := looptest.Start(t, srv)
		for range n {
			s.OpenUDP(0).Send("hi")
			testkit.Pass(2 * time.Millisecond)
		}
		s.Sleep(time.Minute)
		if len(ended) != n || !slices.IsSorted(ended) {
			t.Errorf("%d ended, in order %v", len(ended), slices.IsSorted(ended))
		}
	})
}

func TestUDPWeather(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := looptest.Start(t, udpEcho())
		p := srv.OpenUDP(0)
		count := func(w looptest.Weather) (total, distinct, disorder int) {
			srv.SetWeather(w)
			seen := make(map[string]bool)
			for i := range 1000 {
				p.Send(fmt.Sprint(i))
			}
			srv.SetWeather(looptest.Weather{})
			srv.Sleep(0)
			last := -1
			for _, msg := range p.Received() {
				n, _ := strconv.Atoi(msg)
				if n < last {
					disorder++
				}
				last = n
				seen[msg] = true
				total++
			}
			return total, len(seen), disorder
		}
		if total, distinct, disorder := count(looptest.Weather{}); total != 1000 || distinct != 1000 || disorder != 0 {
			t.Errorf("fair weather: %d, %d, %d", total, distinct, disorder)
		}
		if total, distinct, _ := count(looptest.Weather{Lost: 20}); total != distinct || total < 550 || total > 730 {
			t.Errorf("with a fifth lost each way: %d, %d distinct", total, distinct)
		}
		if total, distinct, _ := count(looptest.Weather{Duplicated: 50}); distinct != 1000 || total < 2000 || total > 2500 {
			t.Errorf("with half of them twice each way: %d, %d distinct", total, distinct)
		}
		if total, distinct, disorder := count(looptest.Weather{Reordered: 20}); total != 1000 || distinct != 1000 || disorder < 100 {
			t.Errorf("reordered: %d, %d distinct, %d out of order", total, distinct, disorder)
		}
	})
}

func TestUDPDialed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := looptest.Start(t, udpEcho())
		srv.UDPBackend("192.0.2.1:53", func(msg string) []string { return []string{"you said " + msg} })
		srv.UDPBackend("192.0.2.2:53", nil)
		for addr, want := range map[string]error{"192.0.2.1:53": loop.ErrIdle, "192.0.2.2:53": syscall.ECONNREFUSED} {
			var got []string
			var reason error
			loop.Dialer{IdleTimeout: time.Minute}.Dial(srv.Loops()[0], "udp://"+addr, func(c *loop.Conn, err error) loop.Handler {
				if err != nil {
					t.Error(err)
					return nil
				}
				c.AfterClose(func(err error) { reason = err })
				if err := c.Send([]byte("hi")); err != nil {
					t.Error(err)
				}
				return loop.HandlerFunc(func(_ *loop.Conn, msg []byte) error { got = append(got, string(msg)); return nil })
			})
			srv.Sleep(2 * time.Minute)
			if !errors.Is(reason, want) || want == loop.ErrIdle && !slices.Equal(got, []string{"you said hi"}) {
				t.Errorf("%s: got %q, closed with %v", addr, got, reason)
			}
		}
	})
}

func TestDialScripted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := looptest.Start(t, &loop.Server{NumLoops: 1})
		b := srv.Backend("tcp", "db.example:5432")
		var errs []error
		dial := func() {
			loop.Dialer{Timeout: time.Second}.Dial(srv.Loops()[0], "tcp://db.example:5432", func(c *loop.Conn, err error) loop.Handler {
				errs = append(errs, err)
				return loop.HandlerFunc(echo)
			})
			srv.Sleep(2 * time.Second)
		}
		dial()
		p := b.Accept()
		p.Send("hello")
		if got := p.Received(); got != "hello" {
			t.Errorf("received %q", got)
		}
		b.Hang(true)
		dial()
		b.Hang(false)
		b.Refuse(syscall.EHOSTUNREACH)
		dial()
		if len(errs) != 3 || errs[0] != nil || errs[1] == nil || !errors.Is(errs[2], syscall.EHOSTUNREACH) {
			t.Errorf("%v", errs)
		}
		if b.Accept() != nil {
			t.Error("what was refused was accepted")
		}
	})
}
