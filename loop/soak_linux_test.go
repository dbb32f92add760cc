package loop_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/internal/rig"
	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop"
)

// A soaked server has lives on one address, echoes on others (TLS, UDP, a unix socket), and a proxy
// that pipes to the unix socket.
type soaked struct {
	*loop.Server
	lives  atomic.Pointer[lives]
	others [4]net.Addr
	foul   atomic.Pointer[string] // a panic that is not the test's
}

// Write takes the log.
func (s *soaked) Write(p []byte) (int, error) {
	var line struct{ Panic, Stack string }
	if json.Unmarshal(p, &line) == nil && line.Stack != "" && line.Panic != errLife.Error() {
		text := line.Panic + "\n" + line.Stack
		s.foul.CompareAndSwap(nil, &text)
	}
	return len(p), nil
}

func newSoaked(t *testing.T, ctx context.Context) *soaked {
	s := &soaked{}
	s.lives.Store(newLives(t, 0, 20*time.Millisecond))
	s.Server = s.lives.Load().newServer()
	unix := "unix://" + testkit.SocketPath(t)
	accept := func(*loop.Conn) loop.Handler { return loop.HandlerFunc(echo) }
	pipes := func(a *loop.Conn) loop.Handler {
		a.PauseRead()
		loop.Dialer{}.Dial(a.Loop(), unix, func(b *loop.Conn, err error) loop.Handler {
			if err != nil {
				a.CloseWithError(err)
				return nil
			}
			loop.Pipe(a, b, loop.PipeConfig{IdleTimeout: time.Second})
			a.ResumeRead()
			return loop.HandlerFunc(echo)
		})
		return loop.HandlerFunc(echo)
	}
	s.Addr, s.Logger = "tcp://127.0.0.1:0", zerolog.New(s)
	s.Accept = func(c *loop.Conn) loop.Handler { return s.lives.Load().accept(c) }
	s.Hooks.OnClosing = func(c *loop.Conn, err error) {
		if ls := s.lives.Load(); ls.of(c) != nil {
			ls.closing(c, err)
		}
	}
	s.Hooks.OnDrain = nil
	s.Listeners = []loop.Listener{
		{Addr: "tcp://127.0.0.1:0", Accept: accept, Codec: codec.Lines{}, TLS: serverTLS(), IdleTimeout: time.Second},
		{Addr: "udp://127.0.0.1:0", Accept: accept, IdleTimeout: time.Second},
		{Addr: unix, Accept: accept, Codec: codec.Lines{}, IdleTimeout: time.Second},
		{Addr: "tcp://127.0.0.1:0", Accept: pipes, IdleTimeout: time.Second},
	}
	startWith(t, ctx, s.Server)
	copy(s.others[:], s.Addrs()[1:])
	return s
}

// round has clients of all kinds for that long, and then none.
func (s *soaked) round(t *testing.T, seed uint64, d time.Duration) {
	ls := newLives(t, seed, 20*time.Millisecond)
	ls.server = s.Server
	s.lives.Store(ls)
	end := time.Now().Add(d)
	var mu sync.Mutex
	got := make(map[string]string)
	var clients sync.WaitGroup
	for i := range uint64(4) {
		r := rand.New(rand.NewPCG(seed, i))
		clients.Go(func() {
			for time.Now().Before(end) {
				peer, text := ls.client(s.LocalAddr(), r)
				mu.Lock()
				got[peer] = text
				mu.Unlock()
			}
		})
	}
	for i, addr := range s.others {
		clients.Go(func() {
			for r := rand.New(rand.NewPCG(seed, uint64(10+i))); time.Now().Before(end); {
				s.talk(t, addr, i == 0, r)
			}
		})
	}
	clients.Go(func() { ls.outsider(s.Server, end) })
	clients.Wait()
	defer s.explain(t)
	testkit.Eventually(t, "all connections and timers have gone", func() bool {
		st := s.Stats()
		return st.Conns == 0 && st.Timers == 0
	})
	for peer, text := range got {
		if ls.byPeer[peer] != nil || text != "" {
			ls.check(peer, text, false)
		}
	}
}

// explain shows what is left when a round has failed.
func (s *soaked) explain(t *testing.T) {
	if !t.Failed() {
		return
	}
	st := s.Stats()
	t.Logf("left: %d connections, %d timers; %+v", st.Conns, st.Timers, st)
	for _, l := range s.Loops() {
		_ = l.Post(func() {
			for c := range l.Conns() {
				t.Logf("left on loop %d: %+v", l.Index(), c.Info())
			}
		})
	}
	stacks := make([]byte, 1<<20)
	time.Sleep(time.Second) // for what is posted
	t.Logf("%s", stacks[:runtime.Stack(stacks, true)])
}

// talk is a client of an echo until it has had enough.
func (s *soaked) talk(t *testing.T, addr net.Addr, secure bool, r *rand.Rand) {
	c, err := net.Dial(addr.Network(), addr.String())
	if errors.Is(err, syscall.ECONNRESET) { // a server that refuses may be that fast
		return
	}
	if err != nil {
		t.Errorf("%v: %v", addr, err)
		return
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(time.Second))
	if r.IntN(8) == 0 {
		secure = false // which is no handshake
	} else if secure {
		c = tls.Client(c, &tls.Config{InsecureSkipVerify: true})
	}
	for n := range 1 + r.IntN(30) {
		line := append(fmt.Append(nil, n, " "), append(bytes.Repeat([]byte("x"), r.IntN(1<<r.IntN(14))), '\n')...)
		if addr.Network() != "udp" && r.IntN(10) == 0 {
			line = line[:len(line)-1] // part of a frame
		}
		if _, err := c.Write(line); err != nil {
			return
		}
		if r.IntN(3) > 0 {
			_, _ = c.Read(make([]byte, 1+r.IntN(20_000)))
		}
	}
	if tcp, ok := c.(*net.TCPConn); ok && r.IntN(3) == 0 {
		_ = tcp.SetLinger(0)
	} else if ok && r.IntN(2) == 0 {
		_ = tcp.CloseWrite()
		_, _ = io.Copy(io.Discard, c)
	}
}

// All there is to do, mixed, leaves nothing behind: no panic but the test's own, no timer,
// goroutine or descriptor, no memory. LOOPWHEEL_FAULT_TIME=1h runs it for as long.
func TestSoak(t *testing.T) {
	testkit.NeedSlow(t, "clients of all kinds for as long as "+rig.FaultTimeEnv+" says, or 30 s")
	const mayGrow = 4 << 20 // bytes: what clients at random left in pools
	first := testkit.Seed(t, 1)
	bothEngines(t, func(t *testing.T, ctx context.Context) {
		s := newSoaked(t, ctx)
		total := rig.FaultTime(t, 30*time.Second)
		end := time.Now().Add(total)
		each := min(total/4, 30*time.Second)
		settled := func() (heap int64, goroutines, files int) {
			s.lives.Store(newLives(t, 0, time.Millisecond)) // those of the round are not to count
			var m runtime.MemStats
			for range 3 { // pools deliverWithoutSocket one collection
				runtime.GC()
			}
			runtime.ReadMemStats(&m)
			return int64(m.HeapAlloc), runtime.NumGoroutine(), openFiles(t)
		}
		s.round(t, first, each)
		heap, goroutines, files := settled()
		for n := uint64(1); time.Now().Before(end) && !t.Failed(); n++ {
			s.round(t, first+n, each)
		}
		testkit.Eventually(t, "no more goroutines and descriptors than after the first round", func() bool {
			_, g, f := settled()
			return g <= goroutines && f <= files
		})
		after, _, _ := settled()
		if after > heap+mayGrow {
			t.Errorf("%d bytes are in use, %d after the first round", after, heap)
		}
		if text := s.foul.Load(); text != nil {
			t.Errorf("a panic that no callback has caused: %s", *text)
		}
		st := s.Stats()
		t.Logf("%v: %d connections, %d messages, %d panics, %d cut; heap %d then %d; %d goroutines, %d descriptors",
			total, st.Accepted, st.Messages, st.Panics, st.Cut, heap, after, goroutines, files)
	})
}
