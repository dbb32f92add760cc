package loop_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/internal/rig"
	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/looptest"
)

// lifeSeconds is how long each of these tests is, in what lives take for seconds.
const lifeSeconds = 60

// check is about a connection that has ended, of which its peer has got so much. whole: the peer
// has done nothing by which something could be lost.
func (ls *lives) check(peer, got string, whole bool) {
	ls.mu.Lock()
	l := ls.byPeer[peer]
	ls.mu.Unlock()
	n, err := checkLines(got)
	switch {
	case l == nil:
		ls.fault("there was no connection of %s", peer)
	case err != nil:
		l.wrong("its peer got %d lines, and then %v", n, err)
	case !l.closed || l.ended != l.after:
		l.wrong("OnClose was called: %v; of %d functions %d were called after it", l.closed, l.after, l.ended)
	case n > l.out || whole && n < l.out && !errors.Is(l.reason, loop.ErrSlowConsumer):
		l.wrong("its peer got %d lines of %d; it ended with %v", n, l.out, l.reason)
	}
}

// checkOps wants all that there is to do to have been done.
func (ls *lives) checkOps() {
	for op := range ls.numbers {
		if ls.numbers[op].Load() == 0 {
			ls.fault("number %d was never done", op)
		}
	}
}

// lifePeer is the other end of a life in memory.
type lifePeer struct {
	*looptest.Peer
	next  int // line
	rest  string
	got   strings.Builder
	whole bool
}

// act does something at random. Those that are whole only send, and read.
func (p *lifePeer) act(r *rand.Rand) {
	p.got.WriteString(p.Received())
	op := r.IntN(24)
	if p.whole {
		op = 24
	}
	switch op {
	case 0, 1:
		p.Block(r.IntN(1 << r.IntN(17)))
	case 2, 3, 4:
		p.Unblock()
	case 5:
		p.Take(r.IntN(10_000))
	case 6:
		[]func(*looptest.Peer){(*looptest.Peer).Close, (*looptest.Peer).CloseWrite, (*looptest.Peer).Reset}[r.IntN(3)](p.Peer)
	default:
		for range r.IntN(20) {
			p.rest += fmt.Sprintln(p.next)
			p.next++
		}
		k := r.IntN(len(p.rest) + 1)
		p.Send(p.rest[:k])
		p.rest = p.rest[k:]
	}
}

func TestLivesInMemory(t *testing.T) {
	first, rounds := testkit.Seed(t, 1), uint64(8)
	switch {
	case os.Getenv("LOOPWHEEL_SLOW") != "":
		rounds = 1_000
	case testing.Short():
		rounds = 2
	}
	for i := range rounds {
		ls := newLives(t, first+i, time.Second)
		config, open := ls.newServer(), (*looptest.Server).Open
		if i%2 == 1 {
			config.TLS = serverTLS()
			open = func(srv *looptest.Server) *looptest.Peer { return srv.OpenTLS(nil) }
		}
		bubble(t, config, func(t *testing.T, srv *looptest.Server) {
			ls.t = t
			r := rand.New(rand.NewPCG(first+i, 1))
			var peers []*lifePeer
			for began := time.Now(); time.Since(began) < lifeSeconds*time.Second; {
				if wait(time.Duration(r.IntN(100)) * time.Millisecond); len(peers) == 0 || r.IntN(16) == 0 {
					peers = append(peers, &lifePeer{Peer: open(srv), whole: r.IntN(4) == 0})
				}
				peers[max(0, len(peers)-1-r.IntN(12))].act(r)
			}
			stopped := srv.Stop() // which may cut some
			for _, p := range peers {
				p.got.WriteString(p.Received())
				ls.check(p.Addr().String(), p.got.String(), p.whole)
			}
			if s := srv.Stats(); s.Conns != 0 || s.Accepted != s.Closed+s.Refused || s.Closed != uint64(len(peers)) {
				t.Errorf("%d peers: %+v", len(peers), s)
			}
			ls.checkOps()
			if t.Failed() {
				t.Logf("round %d; Stop returned %v, and %d were cut", i, stopped, srv.Stats().Cut)
			}
		})
		if t.Failed() {
			return
		}
	}
}

// The same on real sockets, with goroutines beside that tell and post. LOOPWHEEL_FAULT_TIME=30s runs
// it for as long.
func TestLivesForReal(t *testing.T) {
	first := testkit.Seed(t, 1)
	bothEngines(t, func(t *testing.T, ctx context.Context) {
		ls := newLives(t, first, 20*time.Millisecond)
		srv := ls.newServer()
		srv.Addr = "tcp://127.0.0.1:0"
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		if err := srv.Start(ctx); err != nil {
			t.Fatal(err)
		}
		end := time.Now().Add(rig.FaultTime(t, lifeSeconds*ls.second))
		var mu sync.Mutex
		got := make(map[string]string)
		var clients sync.WaitGroup
		for i := range uint64(8) {
			clients.Go(func() {
				r := rand.New(rand.NewPCG(first, i))
				for time.Now().Before(end) {
					peer, text := ls.client(srv.LocalAddr(), r)
					mu.Lock()
					got[peer] = text
					mu.Unlock()
				}
			})
			clients.Go(func() { ls.outsider(srv, end) })
		}
		clients.Wait()
		cancel()
		if err, cut := srv.Wait(), new(loop.DrainError); err != nil && !errors.As(err, &cut) {
			t.Error(err)
		}
		for peer, text := range got {
			if ls.byPeer[peer] != nil || text != "" { // it may reset before it is accepted
				ls.check(peer, text, false)
			}
		}
		ls.checkOps()
	})
}

// client is one peer, until its connection ends. It returns its address, and what it got.
func (ls *lives) client(addr net.Addr, r *rand.Rand) (peer, got string) {
	c, err := net.Dial(addr.Network(), addr.String())
	if errors.Is(err, syscall.ECONNRESET) { // a server that refuses may be that fast
		return "", ""
	}
	if err != nil {
		ls.fault("%v", err)
		return "", ""
	}
	defer c.Close()
	peer = c.LocalAddr().String()
	_ = c.SetDeadline(time.Now().Add(20 * ls.second))
	var reading sync.WaitGroup
	var text strings.Builder
	reads := r.IntN(4) > 0
	if reads {
		reading.Go(func() { _, _ = io.Copy(&text, c) })
	}
	for n := range r.IntN(100) {
		if _, err := fmt.Fprintln(c, n); err != nil {
			break
		}
		if r.IntN(4) == 0 {
			time.Sleep(time.Duration(r.IntN(1000)) * ls.second / 1000) // no event: it is how fast it sends
		}
	}
	switch r.IntN(4) {
	case 0:
		_ = c.(*net.TCPConn).SetLinger(0)
	case 1:
		_ = c.(*net.TCPConn).CloseWrite()
		reading.Wait()
	}
	c.Close()
	reading.Wait()
	return peer, text.String()
}

// outsider is a goroutine that holds the addresses of connections.
func (ls *lives) outsider(srv *loop.Server, end time.Time) {
	for time.Now().Before(end) {
		ls.mu.Lock()
		all := make([]*life, 0, len(ls.byPeer))
		for _, l := range ls.byPeer { // in an order of its own
			if all = append(all, l); len(all) == cap(all) || len(all) == 100 {
				break
			}
		}
		ls.mu.Unlock()
		for _, l := range all {
			_ = l.c.Ref().Tell(func(*loop.Conn) {
				defer l.begin("a Tell from elsewhere", false)()
				l.body()
			})
		}
		_ = srv.Loops()[0].Post(func() {})
		_ = srv.Stats()
		time.Sleep(ls.second / 10) // no event: it is how often it tells
	}
}
