package loop_test

import (
	"testing"

	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/looptest"
)

// A loop that is blocked takes no more than its share of connections with it: the others are
// accepted and served.
func TestBlockedLoopDoesNotStopAccepting(t *testing.T) {
	srv := &loop.Server{NumLoops: 2, Accept: accepting(nil, echo)}
	inMemory(t, srv, func(t *testing.T, srv *looptest.Server) {
		resume := srv.Stall(0)
		var peers []*looptest.Peer
		for range 1000 {
			p := srv.Open()
			p.Write([]byte("x"))
			peers = append(peers, p)
		}
		served := func() (n int) {
			for _, p := range peers {
				if p.Received() == "x" {
					n++
				}
			}
			return n
		}
		if n := served(); n < 900 {
			t.Errorf("with one of two loops blocked %d of 1,000 were served", n)
		}
		before := srv.Stats().Conns
		resume()
		if n := served(); n+before != 1000 {
			t.Errorf("when it went on, %d more were served", n)
		}
	})
}
