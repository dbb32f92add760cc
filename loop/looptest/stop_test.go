package looptest_test

import (
	"sync"
	"testing"
	"testing/synctest"

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
