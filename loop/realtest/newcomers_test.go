package realtest_test

import (
	"context"
	"crypto/tls"
	"math/rand/v2"
	"net"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/looptest"
)

// fate is what becomes of a newcomer, by its ID: whatever an Accept may do.
func fate(c *loop.Conn) loop.Handler {
	h := script{Message: func(c *loop.Conn, msg []byte) error { return c.Send(msg) }}
	switch c.ID() % 8 {
	case 0:
		panic("on purpose")
	case 1:
		return nil
	case 2:
		_ = c.Send([]byte("no"))
		return nil
	case 3:
		c.Close()
	case 4:
		_ = c.Send([]byte("bye"))
		c.CloseWithError(context.Canceled)
	case 5:
		c.PauseRead()
	}
	return h
}

// mostVisits is how often each client comes: what comes faster than it is accepted takes a port for
// a minute, and there are 28,000.
const mostVisits = 100

// visit connects once, in one of several ways.
func visit(addr net.Addr, secret bool, random *rand.Rand) {
	c, err := net.Dial(addr.Network(), addr.String())
	if err != nil {
		return
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	if t, ok := c.(*net.TCPConn); ok && random.IntN(3) == 0 {
		_ = t.SetLinger(0)
	}
	if secret && random.IntN(2) == 0 {
		c = tls.Client(c, &tls.Config{InsecureSkipVerify: true})
	}
	if random.IntN(3) > 0 {
		_, _ = c.Write([]byte("hello"))
	}
	if random.IntN(2) == 0 {
		_, _ = c.Read(make([]byte, 1))
	}
}

// A server ends while newcomers stream in, in each way that they can and that they can be refused:
// each of them is counted once, and nothing is left of any.
func TestEndAmongNewcomers(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("it counts descriptors in /proc; run it on Linux, as CI does")
	}
	needPlain(t, "it does both")
	cert := looptest.Certificate("localhost")
	life := func() {
		srv := &loop.Server{
			Addr: "tcp://127.0.0.1:0", NumLoops: 2, Limits: loop.Limits{MaxConns: 12, Refusal: []byte("full")}, Drain: loop.Drain{Timeout: time.Second},
			Accept: fate, IdleTimeout: time.Second, Timeouts: loop.Timeouts{Close: 100 * time.Millisecond},
			Listeners: []loop.Listener{
				{Addr: "tcp://127.0.0.1:0", TLS: &tls.Config{Certificates: []tls.Certificate{cert}}},
				{Addr: "unix://" + testkit.SocketPath(t)},
			},
		}
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		if err := srv.Start(ctx); err != nil {
			t.Fatal(err)
		}
		var clients sync.WaitGroup
		ended := make(chan struct{})
		first := testkit.Seed(t, 1)
		for i := range 12 {
			random := rand.New(rand.NewPCG(first, uint64(i)))
			clients.Go(func() {
				for at := i; at < i+mostVisits; at++ {
					select {
					case <-ended:
						return
					default:
						visit(srv.Addrs()[at%3], at%3 == 1, random)
					}
				}
			})
		}
		testkit.Eventually(t, "150 have come", func() bool { return srv.Stats().Accepted >= 150 })
		cancel()
		_ = srv.Wait()
		close(ended)
		clients.Wait()
		if st := srv.Stats(); st.Conns != 0 || st.Accepted != st.Refused+st.Closed+st.Probes {
			t.Errorf("%d open; %d accepted, but %d refused, %d closed and %d probes", st.Conns, st.Accepted, st.Refused, st.Closed, st.Probes)
		}
	}
	life()
	files := openFiles(t)
	for range 4 {
		life()
	}
	testkit.Eventually(t, "no more descriptors are open than before", func() bool { return openFiles(t) <= files })
	if stacks := ourGoroutines(); stacks != "" {
		t.Errorf("goroutines are left:\n%s", stacks)
	}
}
