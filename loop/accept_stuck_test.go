package loop_test

import (
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/looptest"
)

// Whichever loop is blocked, those who come meanwhile are served by the others.
func TestNewcomersPassABlockedLoop(t *testing.T) {
	for blocked := range 3 {
		srv := &loop.Server{NumLoops: 3, Accept: accepting(nil, echo)}
		bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
			resume := srv.Stall(blocked)
			var peers []*looptest.Peer
			served := 0
			for range 100 {
				for range 20 {
					p := srv.Open()
					p.Write([]byte("x"))
					peers = append(peers, p)
				}
				wait(time.Millisecond)
			}
			for _, p := range peers {
				if p.Received() == "x" {
					served++
				}
			}
			if served < len(peers)*95/100 {
				t.Errorf("with loop %d of 3 blocked %d of %d were served", blocked, served, len(peers))
			}
			resume()
			for _, p := range peers {
				if p.Received() == "x" {
					served++
				}
			}
			if served != len(peers) {
				t.Errorf("in the end %d of %d were served", served, len(peers))
			}
		})
	}
}

// A loop whose callback has not returned for a while gets nobody, though it has the fewest
// connections and nobody is on the way to it.
func TestNewcomersPassALoopInALongTurn(t *testing.T) {
	for blocked := range 3 {
		srv := &loop.Server{NumLoops: 3, Accept: accepting(nil, echo)}
		bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
			goOn := make(chan struct{})
			_ = srv.Loops()[blocked].Post(func() { <-goOn })
			wait(20 * time.Millisecond)
			for i := range 50 {
				p := srv.Open()
				if p.Send("x"); p.Received() != "x" {
					t.Errorf("with loop %d of 3 in a long turn newcomer %d is not served", blocked, i)
				}
			}
			close(goOn)
		})
	}
}
