package looptest_test

import (
	"crypto/tls"
	"errors"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/looptest"
)

// Several goroutines may stop a server: each gets what Wait returns.
func TestConcurrentStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := looptest.Start(t, echoServer())
		p := srv.Open()
		p.Send("x\n")
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				if err := srv.Stop(); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if !p.Closed() {
			t.Error("a connection is left")
		}
	})
}

// A goroutine that outlives the body of its test may stop the server, while the test's end looks
// whether somebody has.
func TestStopBesideTheEndOfTheTest(t *testing.T) {
	for range 20 {
		synctest.Test(t, func(t *testing.T) {
			srv := looptest.Start(t, echoServer())
			go func() { _ = srv.Stop() }()
		})
	}
}

// After Stop, a peer has all that the server sent at its end, over TLS too: Stop waits for the
// goroutines of peers.
func TestReceivedAfterStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config := echoServer()
		config.TLS = &tls.Config{Certificates: []tls.Certificate{looptest.Certificate("localhost")}}
		config.Accept = func(c *loop.Conn) loop.Handler {
			c.SetBusy(true) // so it is cut at the very end
			return loop.HandlerFunc(echo)
		}
		config.Hooks.OnClosing = func(c *loop.Conn, _ error) { _ = c.Send([]byte("bye")) }
		srv := looptest.Start(t, config)
		var got strings.Builder
		srv.OpenTLS(nil).Answer(func(received []byte) []byte {
			for range 10_000 {
				runtime.Gosched() // it is slow
			}
			got.Write(received)
			return nil
		})
		if cut := new(loop.DrainError); !errors.As(srv.Stop(), &cut) || cut.Cut != 1 {
			t.Errorf("%d connections were cut, want 1", cut.Cut)
		}
		if got.String() != "bye\n" {
			t.Errorf("received %q after Stop, want bye", got.String())
		}
	})
}
