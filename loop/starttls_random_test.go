package loop_test

import (
	"crypto/tls"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/looptest"
)

// Whatever both sides do, at any time: each connection has one end, nothing is left of it, and no
// message of plain text comes after STARTTLS.
func TestStartTLSAtRandom(t *testing.T) {
	first := testkit.Seed(t, 1)
	for i := range testkit.Runs(300) {
		r, peers := rand.New(rand.NewPCG(first+i, 3)), rand.New(rand.NewPCG(first+i, 4))
		post := &postman{}
		post.begin = func(c *loop.Conn) error {
			_ = c.Send([]byte(strings.Repeat("p", r.IntN(10)*r.IntN(10)*100)))
			err := post.start(c)
			for range r.IntN(3) {
				disturb(r, c)
			}
			return err
		}
		post.done = func(c *loop.Conn) { disturb(r, c) }
		t.Run(fmt.Sprint(first+i), func(t *testing.T) {
			mail(t, post, &loop.Server{Timeouts: loop.Timeouts{Frame: 3 * time.Second}, IdleTimeout: 20 * time.Second}, func(t *testing.T, srv *looptest.Server) {
				p := srv.Open()
				randomPeer(peers, srv, p, func(c *loop.Conn) { disturb(r, c) })
				p.Hangup()
				srv.Sleep(time.Minute)
				if st := srv.Stats(); st.Conns != 0 || st.HandshakesPending != 0 || st.Timers != 0 || post.ends != 1 {
					t.Errorf("%d connections, %d handshakes, %d timers are left; it ended %d times", st.Conns, st.HandshakesPending, st.Timers, post.ends)
				}
				for i, line := range post.got {
					if line != "STARTTLS" && !strings.HasPrefix(line, "+") {
						t.Errorf("line %d is %q", i, line)
					}
				}
			})
		})
	}
}

// disturb does something to a connection.
func disturb(r *rand.Rand, c *loop.Conn) {
	switch r.IntN(12) {
	case 0:
		c.Close()
	case 1:
		c.CloseWithError(errEnough)
	case 2:
		c.CloseWrite()
	case 3:
		c.PauseRead()
		c.AfterFunc(time.Duration(r.IntN(3000))*time.Millisecond, c.ResumeRead)
	case 4, 5, 6:
		_ = c.Send(make([]byte, 1<<r.IntN(18)))
	case 7:
		c.OnFlushed(func() { _ = c.Send([]byte("flushed")) })
	case 8:
		_ = c.StartTLS(serverTLS(), nil)
	}
}

// randomPeer says STARTTLS and then whatever comes to its mind.
func randomPeer(r *rand.Rand, srv *looptest.Server, p *looptest.Peer, f func(c *loop.Conn)) {
	if r.IntN(2) == 0 {
		p.Block(r.IntN(2000))
	}
	p.Send("STARTTLS\r\n" + []string{"", "", "", "NOOP\r\n", "\x16\x03", "NO"}[r.IntN(6)])
	for range r.IntN(8) {
		switch r.IntN(8) {
		case 0:
			p.Block(r.IntN(2000))
		case 1, 2:
			p.Unblock()
			p.Received()
			p.StartTLS(clientTLS())
			p.Send("NOOP\r\n", "NO", "OP\r\n")
			return
		case 3:
			p.Raw([]byte(strings.Repeat("garbage\r\n", r.IntN(4))))
		case 4:
			p.Raw(clientHello())
		case 5:
			tell(srv, p, f)
		case 6:
			srv.Sleep(time.Duration(r.IntN(4000)) * time.Millisecond)
		default:
			[]func(){p.Close, p.CloseWrite, p.Reset}[r.IntN(3)]()
		}
	}
}

// The same with real sockets and real time, where handshakes are computed beside the loops while
// something happens to their connections.
func TestStartTLSDisturbed(t *testing.T) {
	testkit.NeedSlow(t, "it takes 12 s")
	const clients, each = 8, 20
	first := testkit.Seed(t, 1)
	allEngines(t, func(t *testing.T, run func(srv *loop.Server)) {
		var opened atomic.Uint64
		srv := upgrading("220 ready\n", func(c *loop.Conn) {
			r := rand.New(rand.NewPCG(first, opened.Add(1)))
			c.AfterFunc(time.Duration(r.IntN(3000))*time.Microsecond, func() { disturb(r, c) })
		})
		srv.Timeouts.Close, srv.IdleTimeout = time.Second, 2*time.Second
		run(srv)
		var wg sync.WaitGroup
		for i := range clients {
			raw := make([]net.Conn, each)
			for j := range raw {
				raw[j] = dialPlain(t, srv.LocalAddr())
			}
			wg.Go(func() {
				for j, nc := range raw {
					c := tls.Client(&frugal{Conn: nc, n: 1 + (i*each+j)*7%2000, first: "STARTTLS\n", plain: 10}, clientTLS())
					if _, err := io.WriteString(c, "hello\n"); err == nil {
						_, _ = c.Read(make([]byte, 1))
					}
					c.Close()
				}
			})
		}
		wg.Wait()
		testkit.Eventually(t, "all are closed", func() bool { st := srv.Stats(); return st.Closed == clients*each && st.HandshakesPending == 0 })
		if st := srv.Stats(); st.Panics != 0 || st.Handshakes == 0 {
			t.Errorf("%d panics, %d handshakes, %d failed", st.Panics, st.Handshakes, st.HandshakesFailed)
		}
	})
}
