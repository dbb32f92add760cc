package handler_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/binary"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/handler"
	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop"
)

// moves are connections that move between the loops of a server at random, on real sockets, and
// hold what comes to them against what was sent.
type moves struct {
	t     *testing.T
	seed  uint64
	conns int
	srv   *loop.Server
	group *handler.Group
	few   *handler.Group // of three: its loops often have no member
	unix  string         // an address of it
	addrs []net.Addr     // plain, unix, TLS, and through a Pipe

	asked, moved, closed, fired atomic.Int64
	told, heard, faults         atomic.Int64
	ended, quit                 atomic.Bool // no moves and Tells any more; no messages
	mu                          sync.Mutex
	all                         []*mover
}

// A mover is the handler of one of them. What is not atomic belongs to its loop.
type mover struct {
	*moves
	c      *loop.Conn
	r      *rand.Rand
	in     uint32 // the next message
	next   [2]int // Tell of each teller
	timers []*moverTimer
	jobs   int
	done   int // of these
	target *loop.Loop
}

type moverTimer struct {
	loop.Timer
	due     time.Time
	pending bool
}

// each returns the period of what is to come once in d for all connections together.
func (m *moves) each(d time.Duration) time.Duration { return time.Duration(m.conns) * d }

func (m *moves) fault(format string, args ...any) {
	if m.faults.Add(1) < 20 {
		m.t.Errorf(format, args...)
	}
}

func (m *mover) maybeMove(one int) {
	if m.target != nil || m.ended.Load() || m.r.IntN(one) != 0 {
		return
	}
	to := m.srv.Loops()[m.r.IntN(4)]
	err := m.c.MoveTo(to, func(c *loop.Conn) {
		if c.Loop() != to || m.target != to {
			m.fault("connection %d is on loop %d, want %d", c.ID(), c.Loop().Index(), to.Index())
		}
		m.target = nil
		m.moved.Add(1)
		m.maybeMove(2)
	})
	if err != nil {
		m.fault("MoveTo: %v", err)
		return
	}
	m.target = to
	m.asked.Add(1)
}

func (m *mover) useTimer() {
	d := time.Duration(m.r.IntN(30)) * time.Millisecond
	if len(m.timers) < 4 {
		x := &moverTimer{due: time.Now().Add(d), pending: true}
		x.Timer = m.c.AfterFunc(d, func() {
			if early := time.Until(x.due); !x.pending || early > 0 {
				m.fault("connection %d: a timer fires; pending: %v, early by %v", m.c.ID(), x.pending, early)
			}
			x.pending = false
			m.fired.Add(1)
			m.maybeMove(5)
		})
		m.timers = append(m.timers, x)
		return
	}
	i := m.r.IntN(len(m.timers))
	x := m.timers[i]
	switch due := time.Now().Add(d); m.r.IntN(3) {
	case 0:
		if got := x.Pending(); got != x.pending {
			m.fault("connection %d: Pending is %v, want %v", m.c.ID(), got, x.pending)
		}
	case 1:
		if got := x.Stop(); got != x.pending {
			m.fault("connection %d: Stop is %v, want %v", m.c.ID(), got, x.pending)
		}
		x.pending = false
	case 2:
		if got := x.Reset(d); got != x.pending {
			m.fault("connection %d: Reset is %v, want %v", m.c.ID(), got, x.pending)
		}
		x.due = due
	}
	if !x.pending {
		m.timers[i] = m.timers[len(m.timers)-1]
		m.timers = m.timers[:len(m.timers)-1]
	}
}

func (m *mover) OnMessage(c *loop.Conn, msg []byte) error {
	if n := binary.BigEndian.Uint32(msg); n != m.in {
		m.fault("connection %d: message %d, want %d", c.ID(), n, m.in)
	}
	m.in++
	m.heard.Add(1)
	answer := msg[:4]
	if m.r.IntN(40) == 0 {
		answer = append(answer, make([]byte, 60_000)...) // which waits for the socket
	}
	if err := c.Send(answer); err != nil {
		m.fault("connection %d: %v", c.ID(), err)
	}
	m.useTimer()
	switch m.r.IntN(30) {
	case 0:
		c.PauseRead()
		c.AfterFunc(time.Millisecond, c.ResumeRead)
	case 1:
		n := m.jobs
		m.jobs++
		err := loop.Offload(c, func(context.Context) int { return n }, func(c *loop.Conn, n int) {
			if n != m.done {
				m.fault("connection %d: job %d, want %d", c.ID(), n, m.done)
			}
			m.done++
			m.maybeMove(5)
		})
		if err != nil {
			m.fault("Offload: %v", err)
		}
	}
	m.maybeMove(2)
	return nil
}

func (m *mover) OnClose(c *loop.Conn, err error) {
	if err != io.EOF || m.jobs != m.done {
		m.fault("connection %d closed with %v, and %d of %d jobs", c.ID(), err, m.done, m.jobs)
	}
	m.closed.Add(1)
}

func (m *moves) accept(c *loop.Conn) loop.Handler {
	x := &mover{moves: m, c: c, r: rand.New(rand.NewPCG(m.seed, c.ID()))}
	c.Every(m.each(50*time.Microsecond), func() { x.maybeMove(4) })
	c.OnIdle(loop.IdleRead, 50*time.Millisecond, func(int) { x.maybeMove(5) })
	m.mu.Lock()
	m.all = append(m.all, x)
	few := len(m.all) <= 3
	m.mu.Unlock()
	if few {
		m.few.Join(c)
	}
	m.group.Join(c) // all are there when the group has them
	return x
}

// piped passes everything on to the unix socket.
func (m *moves) piped(a *loop.Conn) loop.Handler {
	a.PauseRead()
	r := rand.New(rand.NewPCG(m.seed+1, a.ID()))
	loop.Dialer{}.Dial(a.Loop(), m.unix, func(b *loop.Conn, err error) loop.Handler {
		if err != nil {
			m.fault("dial: %v", err)
			return nil
		}
		loop.Pipe(a, b, loop.PipeConfig{})
		a.ResumeRead()
		b.Every(m.each(30*time.Microsecond), func() {
			end := []*loop.Conn{a, b}[r.IntN(2)]
			if m.ended.Load() || r.IntN(4) != 0 || end.MoveTo(m.srv.Loops()[r.IntN(4)], func(*loop.Conn) { m.moved.Add(1) }) != nil {
				return // it may be about to move
			}
			m.asked.Add(1)
		})
		return loop.HandlerFunc(func(*loop.Conn, []byte) error { return nil })
	})
	return loop.HandlerFunc(func(*loop.Conn, []byte) error { return nil })
}

// client is a peer: it sends numbered messages, and wants their answers.
func (m *moves) client(i int) {
	kind := i % len(m.addrs)
	nc, err := net.Dial(m.addrs[kind].Network(), m.addrs[kind].String())
	if err == nil && kind == 2 {
		nc = tls.Client(nc, &tls.Config{InsecureSkipVerify: true})
	}
	if err != nil {
		m.fault("%v", err)
		return
	}
	defer nc.Close()
	r := rand.New(rand.NewPCG(m.seed+2, uint64(i)))
	room, sent := make(chan struct{}, 10), make(chan uint32, 1)
	go func() {
		n := uint32(0)
		for ; !m.quit.Load() && m.faults.Load() == 0; n++ {
			room <- struct{}{}
			b := binary.BigEndian.AppendUint32(nil, 64)
			b = append(binary.BigEndian.AppendUint32(b, n), make([]byte, 60)...)
			cut := r.IntN(len(b))
			_, err := nc.Write(b[:cut])
			if err == nil {
				_, err = nc.Write(b[cut:])
			}
			if err != nil {
				m.fault("write: %v", err)
				break
			}
			if n%10 == 0 {
				time.Sleep(time.Duration(r.IntN(20)) * time.Millisecond) // no event: it is how fast it sends
			}
		}
		sent <- n
		_ = nc.(interface{ CloseWrite() error }).CloseWrite()
	}()
	in, head, next := bufio.NewReader(nc), make([]byte, 8), uint32(0)
	casts := map[uint32]uint32{5: 0, 6: 0} // the last broadcast of each group, by the size of its messages
	for {
		if _, err := io.ReadFull(in, head); err != nil {
			if err != io.EOF {
				m.fault("read: %v", err)
			}
			break
		}
		size, n := binary.BigEndian.Uint32(head), binary.BigEndian.Uint32(head[4:])
		if last, ok := casts[size]; ok { // a broadcast
			if n != last+1 && last != 0 {
				m.fault("client %d: broadcast %d after %d, of those with %d bytes", i, n, last, size)
			}
			casts[size] = n
		} else if n != next {
			m.fault("client %d: answer %d, want %d", i, n, next)
		} else {
			next++
			<-room
		}
		_, _ = in.Discard(int(size) - 4)
	}
	if n := <-sent; n != next {
		m.fault("client %d: %d sent, %d came back", i, n, next)
	}
}

// teller tells all of them numbered things.
func (m *moves) teller(by int) {
	n := make([]int, len(m.all))
	for r := rand.New(rand.NewPCG(m.seed+3, uint64(by))); !m.ended.Load(); {
		for range 20 {
			if m.told.Load() > int64(2*len(m.all)) {
				break // a move waits for all earlier Tells to its loop
			}
			i := r.IntN(len(m.all))
			x, k := m.all[i], n[i]
			n[i]++
			m.told.Add(1)
			err := x.c.Ref().Tell(func(*loop.Conn) {
				if k != x.next[by] {
					m.fault("connection %d: Tell %d of %d, want %d", x.c.ID(), k, by, x.next[by])
				}
				x.next[by] = k + 1
				m.told.Add(-1)
				x.maybeMove(20)
			})
			if err != nil {
				m.fault("Tell: %v", err)
			}
		}
		time.Sleep(m.each(time.Microsecond)) // no event: it is how often it tells
	}
}

// Connections of all kinds move between four loops, while messages, Tells, timers, jobs, pauses and
// broadcasts go on: none is lost, doubled or out of order. LOOPWHEEL_MOVES=1000000 has 1,000
// connections and so many moves on each engine.
func TestMovesAtRandom(t *testing.T) {
	conns, most := 100, int64(5_000)
	if n, err := strconv.ParseInt(os.Getenv("LOOPWHEEL_MOVES"), 10, 64); err == nil {
		conns, most = 1_000, n
	}
	for name, engine := range map[string]loop.Engine{"default": loop.EngineDefault, "epoll": loop.EngineEpoll, "net": loop.EngineNet} {
		t.Run(name, func(t *testing.T) { moveAtRandom(t, engine, conns, most) })
	}
}

func moveAtRandom(t *testing.T, engine loop.Engine, conns int, most int64) {
	m := &moves{t: t, seed: testkit.Seed(t, 52), conns: conns, unix: "unix://" + testkit.SocketPath(t), group: handler.NewGroup(handler.GroupConfig{}), few: handler.NewGroup(handler.GroupConfig{})}
	m.srv = &loop.Server{NumLoops: 4, Engine: engine, Codec: codec.Length{}, Accept: m.accept, IdleTimeout: time.Hour,
		Timeouts: loop.Timeouts{Handshake: time.Hour, Frame: time.Hour}, Limits: loop.Limits{MaxOutbound: 64 << 20},
		Listeners: []loop.Listener{
			{Addr: "tcp://127.0.0.1:0"}, {Addr: m.unix},
			{Addr: "tcp://127.0.0.1:0", TLS: &tls.Config{Certificates: []tls.Certificate{testkit.Certificate("localhost")}}}, {Addr: "tcp://127.0.0.1:0", Accept: m.piped},
		}}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	if err := m.srv.Start(ctx); err != nil {
		t.Fatal(err)
	}
	m.addrs = m.srv.Addrs()
	var clients, others sync.WaitGroup
	for i := range conns {
		clients.Go(func() { m.client(i) })
	}
	testkit.Eventually(t, "all are there", func() bool { return m.group.Len() == conns })
	for by := range 2 {
		others.Go(func() { m.teller(by) })
	}
	others.Go(func() {
		for n := uint32(1); !m.ended.Load(); n++ {
			for m.srv.Stats().Mailbox > 10*conns && !m.ended.Load() {
				time.Sleep(time.Millisecond) // no event: the loops are behind, and each member that moves has one more to run
			}
			must(t, m.group.Broadcast(append(binary.BigEndian.AppendUint32(nil, n), 'b')))
			must(t, m.few.Broadcast(append(binary.BigEndian.AppendUint32(nil, n), 'b', 'b')))
			time.Sleep(m.each(200 * time.Microsecond)) // no event: it is how often it says something
		}
	})
	for shown := time.Now(); m.moved.Load() < most && m.faults.Load() == 0; {
		if time.Since(shown) > time.Minute {
			shown = time.Now()
			t.Logf("%d moves so far", m.moved.Load())
		}
		_ = m.srv.Loops()[rand.IntN(4)].Post(func() { time.Sleep(time.Millisecond) }) // so that its mailbox is long
		time.Sleep(20 * time.Millisecond)                                             // no event: it is how often
	}
	if n := m.few.Len(); n != 3 {
		t.Errorf("the group of three has %d members", n)
	}
	m.ended.Store(true)
	others.Wait()
	testkit.Eventually(t, "all that was told has run", func() bool { return m.told.Load() == 0 })
	testkit.Eventually(t, "all moves are done", func() bool { return m.moved.Load() == m.asked.Load() })
	m.quit.Store(true)
	clients.Wait()
	testkit.Eventually(t, "all have closed", func() bool { return m.closed.Load() == int64(conns) && m.srv.Stats().Conns == 0 })
	testkit.Eventually(t, "no timer is left", func() bool { return m.srv.Stats().Timers == 0 })
	t.Logf("%d moves, %d messages, %d timers", m.moved.Load(), m.heard.Load(), m.fired.Load())
	stop()
	must(t, m.srv.Wait())
}
