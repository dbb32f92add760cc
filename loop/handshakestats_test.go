package loop_test

import (
	"strings"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/looptest"
)

// Each handshake counts once, as under way and then by how it ended.
func TestHandshakesAreCounted(t *testing.T) {
	bubble(t, &loop.Server{TLS: serverTLS(), Codec: codec.Lines{}, Timeouts: loop.Timeouts{Handshake: time.Second}}, func(t *testing.T, srv *looptest.Server) {
		expect := func(what string, done, failed uint64, pending int) {
			t.Helper()
			if st := srv.Stats(); st.Handshakes != done || st.HandshakesFailed != failed || st.HandshakesPending != pending {
				t.Errorf("%s: %d done, %d failed, %d under way; want %d, %d, %d",
					what, st.Handshakes, st.HandshakesFailed, st.HandshakesPending, done, failed, pending)
			}
		}
		srv.OpenTLS(nil)
		expect("one is open", 1, 0, 0)
		srv.Open()
		expect("one says nothing", 1, 0, 0)
		srv.Open().Send("GET / HTTP/1.1\r\n\r\n")
		expect("one speaks plainly", 1, 1, 0)
		srv.Open().Raw(clientHello())
		expect("one has begun", 1, 1, 1)
		wait(2 * time.Second)
		expect("the silent one and the begun one were cut", 1, 3, 0)
	})
}

// The pending handshakes are those that MaxHandshakes limits: connections that have not sent a whole
// record of a ClientHello are none, so a gauge at the limit is a flood.
func TestPendingHandshakesAreThoseLimited(t *testing.T) {
	const most = 3
	srv := &loop.Server{TLS: serverTLS(), Codec: codec.Lines{}, Limits: loop.Limits{MaxHandshakes: most}}
	bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
		expect := func(what string, failed uint64, pending int) {
			t.Helper()
			if st := srv.Stats(); st.HandshakesFailed != failed || st.HandshakesPending != pending {
				t.Errorf("%s: %d failed, %d pending; want %d, %d", what, st.HandshakesFailed, st.HandshakesPending, failed, pending)
			}
		}
		hello := clientHello()
		var half []*looptest.Peer
		for range 2 * most {
			srv.Open()
			p := srv.Open()
			p.Raw(hello[:len(hello)/2])
			half = append(half, p)
		}
		expect("nobody has begun", 0, 0)
		for i, p := range half {
			p.Raw(hello[len(hello)/2:])
			expect("more begin", uint64(max(0, i+1-most)), min(i+1, most))
		}
		wait(11 * time.Second)
		expect("all were cut", 4*most, 0)
	})
}

// A peer that asks and does not read is held back once, until it reads.
func TestHoldingBackIsCounted(t *testing.T) {
	accept := func(*loop.Conn) loop.Handler { return loop.HandlerFunc(echo) }
	bubble(t, &loop.Server{Codec: codec.Lines{}, Limits: loop.Limits{HoldBackAt: 1 << 10}, Accept: accept}, func(t *testing.T, srv *looptest.Server) {
		p := srv.Open()
		p.Block(0)
		p.Send(strings.Repeat(strings.Repeat("x", 99)+"\n", 50))
		p.Send("more\n")
		if st := srv.Stats(); st.HeldBack != 1 || st.Loops[0].HeldBack != 1 || st.Messages >= 50 {
			t.Errorf("held back %d times, %d messages", st.HeldBack, st.Messages)
		}
		p.Unblock()
		if st := srv.Stats(); st.HeldBack < 1 || st.Messages != 51 {
			t.Errorf("held back %d times, %d messages", st.HeldBack, st.Messages)
		}
	})
}
