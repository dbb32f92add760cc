package realtest_test

import (
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/looptest"
)

// One virtual hour with 10,000 connections in memory that do all there is to do, at random. In the
// end all balances.
func TestFaultSoakInMemory(t *testing.T) {
	needSlow(t, "ten minutes of virtual time with 10,000 connections")
	const conns = 10_000
	s := &soak{second: time.Second, maxSend: 3000}
	srv := &loop.Server{
		NumLoops: 3, Codec: codec.Lines{}, IdleTimeout: 2 * time.Minute, IdleJitter: 10 * time.Second,
		CloseTimeout: 5 * time.Second, Accept: s.accept, MaxConns: conns, MaxOutbound: 50_000,
	}
	began := wallClock()
	bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
		most := s.manyPeers(srv, rand.New(rand.NewPCG(1, 5)), 2*conns)
		if most != conns {
			t.Errorf("at most %d connections were open", most)
		}
		wait(time.Hour) // all are evicted, or cut
		st := srv.Stats()
		s.balance(t, st)
		t.Logf("%d connections at most; %d were accepted, %d refused, %d evicted, %d cut; %d timers set, %d fired, %d stopped, %d died with their connection",
			most, st.Accepted, st.Refused, st.Evicted, st.Cut, s.set.Load(), s.fired.Load(), s.stopped.Load(), s.died.Load())
	})
	t.Logf("it took %v", wallClock()-began)
}

// soakFor is how much virtual time passes: some minutes of real time for an hour.
const soakFor = 10 * time.Minute

// manyPeers keeps n peers busy for that long, some of which find no place. It returns how many
// connections were open at most.
func (s *soak) manyPeers(srv *looptest.Server, r *rand.Rand, n int) (most int) {
	peers := make([]*looptest.Peer, n)
	for i := range peers {
		peers[i] = srv.Open()
	}
	for began := time.Now(); time.Since(began) < soakFor; {
		wait(100 * time.Millisecond)
		most = max(most, srv.Stats().Conns)
		for range 25 {
			p := &peers[r.IntN(n)]
			if *p == nil || (*p).Closed() {
				*p = srv.Open()
				continue
			}
			switch r.IntN(40) {
			case 0:
				(*p).Block(r.IntN(10_000))
			case 1, 2:
				(*p).Unblock()
			case 3:
				(*p).Take(r.IntN(1000))
			case 4:
				[]func(*looptest.Peer){(*looptest.Peer).Close, (*looptest.Peer).CloseWrite, (*looptest.Peer).Reset}[r.IntN(3)](*p)
				*p = srv.Open() // refused, at times, as the other may not have gone
			default:
				(*p).Send("hello\nwor", "ld\n")
				(*p).Received() // it would be kept
			}
		}
	}
	return most
}

// The same for real, with sockets, for a while: under the race detector it is the test that no two
// goroutines touch one connection.
func TestFaultSoak(t *testing.T) {
	needSlow(t, "clients at random for as long as "+faultTimeEnv+" says, or 30 s")
	testkit.NeedFiles(t, 600)
	s := &soak{second: 20 * time.Millisecond, maxSend: 20_000}
	srv := &loop.Server{
		Addr: "tcp://127.0.0.1:0", NumLoops: 4, Codec: codec.Lines{}, IdleTimeout: time.Second, IdleJitter: 100 * time.Millisecond,
		CloseTimeout: 200 * time.Millisecond, Accept: s.accept, MaxConns: 150, MaxOutbound: 100_000,
	}
	addr := start(t, srv)
	stop := make(chan struct{})
	var clients sync.WaitGroup
	for i := range uint64(200) {
		clients.Go(func() { soakClient(t, addr, rand.New(rand.NewPCG(i, 6)), stop) })
	}
	time.Sleep(faultTime(t, 30*time.Second))
	close(stop)
	clients.Wait()
	testkit.Eventually(t, "all connections have gone", func() bool { return srv.Stats().Conns == 0 })
	// Loops that had many buffers, as those of TLS have, look now and then whether they still need
	// them. Others linger.
	testkit.Eventually(t, "all timers have gone", func() bool { return srv.Stats().Timers == 0 })
	turnsEnd(t, srv)
	st := srv.Stats()
	s.balance(t, st)
	t.Logf("%d connections were accepted, %d refused, %d evicted, %d cut; %d messages; %d timers set, %d fired, %d stopped, %d died with their connection",
		st.Accepted, st.Refused, st.Evicted, st.Cut, st.Messages, s.set.Load(), s.fired.Load(), s.stopped.Load(), s.died.Load())
}

// soakClient connects, writes, reads, waits and leaves at random.
func soakClient(t *testing.T, addr net.Addr, r *rand.Rand, stop <-chan struct{}) {
	for {
		select {
		case <-stop:
			return
		default:
		}
		c, err := connect(addr.Network(), addr.String())
		if err != nil { // refused so soon that it looks like this
			if !errors.Is(err, syscall.ECONNRESET) {
				t.Error(err)
			}
			continue
		}
		reads := r.IntN(4) > 0
		var reading sync.WaitGroup
		if reads {
			reading.Go(func() { _, _ = io.Copy(io.Discard, c) })
		}
		_ = c.SetDeadline(time.Now().Add(3 * time.Second))
		for range r.IntN(40) {
			if _, err := c.Write([]byte("hello\nworld\n"[:1+r.IntN(12)])); err != nil {
				break
			}
			time.Sleep(time.Duration(r.IntN(50)) * time.Millisecond)
		}
		switch r.IntN(4) {
		case 0:
			_ = tcpBelow(c).SetLinger(0)
		case 1:
			_ = c.(interface{ CloseWrite() error }).CloseWrite()
			time.Sleep(time.Duration(r.IntN(200)) * time.Millisecond)
		case 2:
			time.Sleep(time.Duration(r.IntN(2000)) * time.Millisecond)
		}
		c.Close()
		reading.Wait()
	}
}
