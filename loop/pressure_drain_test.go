package loop_test

import (
	"bytes"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/looptest"
)

func TestDrainIsSpreadAndSaysGoodbye(t *testing.T) {
	srv := &loop.Server{
		NumLoops: 1,
		Drain:    loop.Drain{Window: 10 * time.Second},
		Codec:    codec.Lines{},
		Hooks:    loop.Hooks{OnDrain: func(c *loop.Conn) { _ = c.Send([]byte("goodbye")) }},
		Accept:   accepting(nil, echo),
	}
	bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
		var peers []*looptest.Peer
		for range 100 {
			peers = append(peers, srv.Open())
		}
		srv.Shutdown()
		ended := func() (n int) {
			synctest.Wait()
			for _, p := range peers {
				if p.Ended() {
					n++
				}
			}
			return n
		}
		srv.Sleep(5 * time.Second)
		if n := ended(); n < 45 || n > 55 {
			t.Errorf("%d of 100 have ended after half the window", n)
		}
		for _, p := range peers {
			if !p.Ended() {
				p.Send("still served\n")
				if got := p.Received(); got != "still served\n" {
					t.Errorf("received %q", got)
				}
				break
			}
		}
		srv.Sleep(5 * time.Second)
		if n := ended(); n != 100 {
			t.Errorf("%d of 100 have ended after the window", n)
		}
		for _, p := range peers {
			if p.Received() != "goodbye\n" || !errors.Is(p.Reason(), loop.ErrServerClosed) {
				t.Fatalf("closed with %v", p.Reason())
			}
		}
		if err := srv.Stop(); err != nil {
			t.Error(err)
		}
	})
}

func TestDrainCutsWhatDoesNotMove(t *testing.T) {
	srv := &loop.Server{Drain: loop.Drain{Timeout: 3 * time.Second}, Timeouts: loop.Timeouts{Close: time.Hour}, Accept: accepting(nil, echo)}
	synctest.Test(t, func(t *testing.T) {
		s, err := looptest.TryStart(t, srv)
		if err != nil {
			t.Fatal(err)
		}
		p, q := s.Open(), s.Open()
		p.Block(0)
		p.Write(bytes.Repeat([]byte("x"), 1000))
		q.Block(10)
		q.Write(bytes.Repeat([]byte("y"), 1000))
		began := time.Now()
		s.Shutdown()
		s.Sleep(time.Second)
		q.Unblock()
		var cut *loop.DrainError
		if err := s.Stop(); !errors.As(err, &cut) || cut.Cut != 1 {
			t.Errorf("Wait: %v, want a DrainError with 1", err)
		}
		if d := time.Since(began); d != 3*time.Second {
			t.Errorf("the drain took %v", d)
		}
		if !p.WasReset() || len(q.Received()) != 1000 {
			t.Error("the wrong one was cut")
		}
	})
}
