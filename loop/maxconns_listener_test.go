package loop_test

import (
	"bufio"
	"net"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/looptest"
)

// A crowd at one address leaves room at the others, and what has closed makes room.
func TestMaxConnsOfAListener(t *testing.T) {
	srv := &loop.Server{
		Addr: "tcp://127.0.0.1:0", NumLoops: 2, Codec: codec.Lines{},
		Accept:    func(*loop.Conn) loop.Handler { return loop.HandlerFunc(echo) },
		Listeners: []loop.Listener{{Addr: "tcp://127.0.0.1:0", MaxConns: 2}},
	}
	main := start(t, srv)
	limited := srv.Addrs()[1]
	serves := func(at net.Addr) (net.Conn, bool) {
		c := dial(t, at)
		_, _ = c.Write([]byte("hello\n"))
		line, _ := bufio.NewReader(c).ReadString('\n')
		return c, line == "hello\n"
	}
	first, ok := serves(limited)
	if _, second := serves(limited); !ok || !second {
		t.Fatal("two connections are not served at an address that may have two")
	}
	if _, ok := serves(limited); ok {
		t.Error("a third is served")
	}
	for range 3 {
		if _, ok := serves(main); !ok {
			t.Error("the other address is full, too")
		}
	}
	if n := srv.Stats().Refused; n != 1 {
		t.Errorf("%d refused, want 1", n)
	}
	_ = first.Close()
	testkit.Eventually(t, "one is served in place of one that has closed", func() bool {
		_, ok := serves(limited)
		return ok
	})
}

// So it is with sessions of UDP.
func TestMaxConnsOfAListenerOfUDP(t *testing.T) {
	srv := &loop.Server{Addr: "udp://127.0.0.1:0", Accept: silent, Listeners: []loop.Listener{{Addr: "udp://127.0.0.1:0", MaxConns: 2}}}
	bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
		for listener, want := range map[int]int{0: 5, 1: 2} {
			before := srv.Stats().Conns
			for range 5 {
				srv.OpenUDP(listener).Send("x")
			}
			if n := srv.Stats().Conns - before; n != want {
				t.Errorf("listener %d has %d sessions, want %d", listener, n, want)
			}
		}
		wait(time.Hour)
		srv.OpenUDP(1).Send("x")
		if n := srv.Stats().Conns; n != 1 {
			t.Errorf("%d sessions after those before have ended, want 1", n)
		}
	})
}
