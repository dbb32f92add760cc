package realtest_test

import (
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/looptest"
)

// soak is a server whose connections do all there is to do, at random, and count it.
type soak struct {
	second  time.Duration // as long as they take it for; a second in virtual time
	maxSend int

	opened, closed                   atomic.Int64
	set, fired, stopped, died, early atomic.Int64
	told                             atomic.Int64
}

// soaked is one connection: its timers that are pending.
type soaked struct {
	*soak
	r       *rand.Rand
	pending map[int]*soakTimer
	n       int
}

type soakTimer struct {
	loop.Timer
	due time.Time
}

func (s *soak) accept(c *loop.Conn) loop.Handler {
	s.opened.Add(1)
	h := &soaked{soak: s, r: rand.New(rand.NewPCG(c.ID(), 3)), pending: make(map[int]*soakTimer)}
	c.OnIdle(loop.IdleRead, time.Duration(1+h.r.IntN(20))*s.second, func(int) { h.act(c) })
	c.OnIdle(loop.WriteStalled, 10*s.second, func(n int) {
		if n > 3 {
			c.Close()
		}
	})
	c.Every(time.Duration(1+h.r.IntN(60))*s.second, func() { h.act(c) })
	return h
}

func (h *soaked) OnMessage(c *loop.Conn, msg []byte) error {
	h.act(c)
	if h.r.IntN(200) == 0 {
		return fmt.Errorf("enough of %q", msg)
	}
	return c.Send(msg)
}

func (h *soaked) OnClose(*loop.Conn, error) {
	h.closed.Add(1)
	h.died.Add(int64(len(h.pending)))
	h.pending = nil
}

// act does something at random.
func (h *soaked) act(c *loop.Conn) {
	switch h.r.IntN(9) {
	case 0, 1, 2:
		h.n++
		n := h.n
		h.set.Add(1)
		d := time.Duration(h.r.IntN(90_000)) * h.second / 1000
		timer := &soakTimer{due: time.Now().Add(d)}
		h.pending[n] = timer
		timer.Timer = c.AfterFunc(d, func() {
			if time.Now().Before(timer.due) {
				h.early.Add(1)
			}
			delete(h.pending, n)
			h.fired.Add(1)
			h.act(c)
		})
	case 3:
		for n, timer := range h.pending {
			if timer.Stop() {
				h.stopped.Add(1)
				delete(h.pending, n)
			}
			break
		}
	case 4:
		for _, timer := range h.pending {
			d := time.Duration(h.r.IntN(60)) * h.second
			timer.due = time.Now().Add(d)
			timer.Reset(d)
			break
		}
	case 5:
		_ = c.Send(make([]byte, h.r.IntN(h.maxSend)))
	case 6:
		_ = c.Ref().Tell(func(*loop.Conn) { h.told.Add(1) })
	case 7:
		c.SetIdleTimeout(time.Duration(20+h.r.IntN(200)) * h.second)
	case 8:
		if h.r.IntN(20) == 0 {
			c.Close()
		}
	}
}

// One virtual hour of everything at random. In the end all balances.
func TestSoak(t *testing.T) {
	first := testkit.Seed(t, 0)
	for i := range uint64(3) {
		s := &soak{second: time.Second, maxSend: 100_000}
		srv := &loop.Server{
			NumLoops: 3, Codec: codec.Lines{Max: 200_000}, IdleTimeout: time.Minute, IdleJitter: 10 * time.Second,
			CloseTimeout: 5 * time.Second, Accept: s.accept, MaxConns: 12, MaxOutbound: 400_000,
		}
		bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
			s.peers(srv, rand.New(rand.NewPCG(first+i, 4)))
			wait(time.Hour) // all are evicted, or cut
			s.balance(t, srv.Stats())
			if srv.Stats().Cut == 0 {
				t.Error("nobody was cut")
			}
		})
	}
}

// peers opens connections, writes, blocks, takes and leaves, for an hour.
func (s *soak) peers(srv *looptest.Server, r *rand.Rand) {
	var peers []*looptest.Peer
	for began := time.Now(); time.Since(began) < time.Hour; {
		wait(time.Duration(r.IntN(1000)) * time.Millisecond)
		if r.IntN(8) == 0 {
			peers = append(peers, srv.Open())
			continue
		}
		if len(peers) == 0 {
			continue
		}
		i := r.IntN(len(peers))
		switch p := peers[i]; r.IntN(12) {
		case 0:
			p.Block(r.IntN(100_000))
		case 1, 2:
			p.Unblock()
		case 3:
			p.Take(r.IntN(1000))
		case 4:
			[]func(*looptest.Peer){(*looptest.Peer).Close, (*looptest.Peer).CloseWrite, (*looptest.Peer).Reset}[r.IntN(3)](p)
			peers = append(peers[:i], peers[i+1:]...)
		default:
			p.Send("hello\nwor", "ld\n")
		}
	}
}

func (s *soak) balance(t *testing.T, st loop.Stats) {
	if s.opened.Load() != s.closed.Load() || st.Accepted != st.Refused+st.Closed || st.Conns != 0 || st.Closed != uint64(s.closed.Load()) {
		t.Errorf("%d opened, %d closed; %+v", s.opened.Load(), s.closed.Load(), st)
	}
	if s.set.Load() != s.fired.Load()+s.stopped.Load()+s.died.Load() || st.Timers != 0 {
		t.Errorf("%d timers set, %d fired, %d stopped, %d died with their connection, %d pending",
			s.set.Load(), s.fired.Load(), s.stopped.Load(), s.died.Load(), st.Timers)
	}
	if n := s.early.Load(); n > 0 {
		t.Errorf("%d timers were early", n)
	}
	if s.told.Load() == 0 || st.Evicted == 0 || st.Refused == 0 || s.stopped.Load() == 0 || st.Panics != 0 {
		t.Errorf("something did not happen, or went wrong: %d told, %d stopped, %+v", s.told.Load(), s.stopped.Load(), st)
	}
	for i, l := range st.Loops {
		if l.Conns != 0 || l.Mailbox != 0 {
			t.Errorf("loop %d: %+v", i, l)
		}
	}
}
