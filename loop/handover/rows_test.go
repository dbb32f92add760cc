//go:build unix

package handover_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/internal/rig"
	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/handover"
)

// This file is what operators and peers do at the wrong moment.

// A codec that Accept, or a message, has chosen goes on with its state, and is chosen by Accept again.
func TestSetCodecMoves(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	servers := []*loop.Server{lines("a"), lines("b")}
	for i, srv := range servers {
		srv.Accept = func(c *loop.Conn) loop.Handler {
			c.SetCodec(statefulCodec{})
			return accept(string(rune('a' + i)))(c)
		}
	}
	start(t, path, servers[0])
	c := dial(t, servers[0])
	c.say("one\nhal")
	c.hears("a 1 one")
	if r := start(t, path, servers[1]); r.Moved != 1 {
		t.Fatalf("%+v, want 1 moved", r)
	}
	c.say("f\n")
	c.hears("b 2 half")
}

// A connection that was adopted has no address where the next process would look for it: it stays,
// and drains.
func TestAdoptedStays(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	a := lines("a")
	a.Hooks.OnDrain = func(c *loop.Conn) { _ = c.Send([]byte("bye")) }
	start(t, path, a)
	near, far, err := pair(t, "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Adopt(near, nil, loop.Listener{Codec: a.Codec, Accept: accept("a")}); err != nil {
		t.Fatal(err)
	}
	c := &client{t, far, bufio.NewReader(far)}
	c.say("one\n")
	c.hears("a 1 one")
	r := start(t, path, lines("b"))
	if want := map[string]int{"no address": 1}; r.Moved != 0 || !reflect.DeepEqual(r.Stayed, want) {
		t.Errorf("%d moved and %v stayed, want 0 and %v", r.Moved, r.Stayed, want)
	}
	c.hears("bye")
	if _, err := c.in.ReadByte(); err != io.EOF {
		t.Errorf("the peer reads %v, want EOF", err)
	}
}

func pair(t *testing.T, network, addr string) (near, far net.Conn, err error) {
	ln, err := net.Listen(network, addr)
	if err != nil {
		return nil, nil, err
	}
	defer ln.Close()
	if far, err = net.Dial(network, ln.Addr().String()); err != nil {
		return nil, nil, err
	}
	t.Cleanup(func() { far.Close() })
	_ = far.SetDeadline(time.Now().Add(patience))
	near, err = ln.Accept()
	return near, far, err
}

// A farewell closes its connection after a message.
type farewell struct {
	*counter
	closed chan struct{}
}

func (h farewell) OnMessage(c *loop.Conn, _ []byte) error {
	defer c.Close()
	return c.Send([]byte("bye"))
}

func (h farewell) OnClose(_ *loop.Conn, err error) {
	if err == nil {
		close(h.closed)
	}
}

// A unix connection that has moved by the name of its listener is known as one of unix: its close
// does not wait until the peer's program has read.
func TestNamedUnixCloses(t *testing.T) {
	path, closed := filepath.Join(t.TempDir(), "s"), make(chan struct{})
	a, b := lines("a"), lines("b")
	b.Timeouts.Close = time.Hour
	b.Listeners = []loop.Listener{{Addr: "name://tunnel", Accept: func(c *loop.Conn) loop.Handler {
		return farewell{accept("b")(c).(*counter), closed}
	}}}
	start(t, path, a)
	near, far, err := pair(t, "unix", testkit.SocketPath(t))
	if err == nil {
		err = a.Adopt(near, nil, loop.Listener{Addr: "name://tunnel", Codec: a.Codec, Accept: accept("a")})
	}
	if err != nil {
		t.Fatal(err)
	}
	if r := start(t, path, b); r.Moved != 1 {
		t.Fatalf("%d moved, want 1", r.Moved)
	}
	c := &client{t, far, bufio.NewReader(far)}
	c.say("one\n")
	testkit.Receive(t, "the close", closed)
	c.hears("bye")
}

// The next version adds addresses, and sets options of the sockets that it takes over.
func TestNextVersion(t *testing.T) {
	for name, row := range map[string]struct {
		change func(dir string, b *loop.Server)
		check  func(t *testing.T, dir string, b *loop.Server, c *client)
	}{
		"a UDP address": {func(_ string, b *loop.Server) {
			b.Listeners = []loop.Listener{{Addr: "udp://127.0.0.1:0"}}
		}, func(t *testing.T, _ string, b *loop.Server, _ *client) {
			nc, err := net.Dial("udp", b.Addrs()[1].String())
			if err != nil {
				t.Fatal(err)
			}
			defer nc.Close()
			_ = nc.SetDeadline(time.Now().Add(patience))
			_, _ = nc.Write([]byte("x"))
			buf := make([]byte, 10)
			if n, err := nc.Read(buf); string(buf[:n]) != "b 1 x" {
				t.Errorf("the new address answers %q, %v", buf[:n], err)
			}
		}},
		"a unix address": {func(dir string, b *loop.Server) {
			b.Listeners = []loop.Listener{{Addr: "unix://" + filepath.Join(dir, "x")}}
		}, func(t *testing.T, dir string, _ *loop.Server, _ *client) {
			nc, err := net.Dial("unix", filepath.Join(dir, "x"))
			if err != nil {
				t.Fatal(err)
			}
			nc.Close()
		}},
		"options of sockets": {func(_ string, b *loop.Server) {
			b.TCP.ReceiveBuffer, b.TCP.Backlog = 50_000, 10
		}, func(t *testing.T, dir string, b *loop.Server, _ *client) {
			newcomer := dial(t, b)
			newcomer.say("x\n")
			newcomer.hears("b 1 x")
			for _, n := range receiveBuffers(b) {
				if n != 50_000 && n != 100_000 { // Linux doubles it
					t.Errorf("a connection has a receive buffer of %d bytes, want 50,000", n)
				}
			}
			if runtime.GOOS != "linux" {
				return // where a size that was set cannot be taken back
			}
			c, alone := lines("c"), lines("c")
			start(t, filepath.Join(dir, "s"), c)
			last := dial(t, c)
			last.say("x\n")
			last.hears("c 1 x")
			if err := alone.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			defer alone.Close()
			first := dial(t, alone)
			first.say("x\n")
			first.hears("c 1 x")
			usual := receiveBuffers(alone)[0]
			if all := receiveBuffers(c); len(all) != 3 || !slices.Contains(all, usual) { // two have moved, with theirs
				t.Errorf("connections of a version that sets no size have receive buffers of %d bytes, want %d for the newcomer", all, usual)
			}
		}},
		"an idle timeout": {func(_ string, b *loop.Server) {
			b.IdleTimeout = 50 * time.Millisecond
		}, func(t *testing.T, _ string, _ *loop.Server, c *client) {
			if _, err := c.in.ReadByte(); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("a silent connection reads %v, want its end", err)
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			a, b := lines("a"), lines("b")
			row.change(dir, b)
			start(t, filepath.Join(dir, "s"), a)
			c := dial(t, a)
			c.say("one\n")
			c.hears("a 1 one")
			if r := start(t, filepath.Join(dir, "s"), b); r.Moved != 1 {
				t.Fatalf("%+v, want 1 moved", r)
			}
			if name != "an idle timeout" {
				c.say("two\n")
				c.hears("b 2 two")
			}
			row.check(t, dir, b, c)
		})
	}
}

// receiveBuffers returns their sizes, of each connection.
func receiveBuffers(srv *loop.Server) (all []int) {
	for ref := range srv.Conns() {
		size := make(chan int, 1)
		_ = ref.Tell(func(c *loop.Conn) {
			raw, _ := c.SyscallConn()
			_ = raw.Control(func(fd uintptr) {
				n, _ := syscall.GetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF)
				size <- n
			})
		})
		all = append(all, <-size)
	}
	return all
}

// A successor that fails, at an address with a file, leaves the file to the process that serves.
func TestUnixFileStays(t *testing.T) {
	dir := t.TempDir()
	path, addr := filepath.Join(dir, "s"), "unix://"+filepath.Join(dir, "a")
	a := lines("a")
	a.Addr = addr
	start(t, path, a)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for range 2 {
		b := lines("b")
		b.Addr, b.Listeners = addr, []loop.Listener{{Addr: "tcp://" + taken.Addr().String()}}
		if _, err := open(t, b, handover.Config{Path: path}); err == nil {
			t.Error("it listens where another one does")
		}
		c := dial(t, a)
		c.say("x\n")
		c.hears("a 1 x")
	}
}

// A PROXY header that has not come, and jobs that are under way, are waited for.
func TestWaitsFor(t *testing.T) {
	t.Run("a PROXY header", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "s")
		servers := []*loop.Server{lines("a"), lines("b")}
		for _, srv := range servers {
			srv.ProxyProtocol = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
		}
		if _, err := open(t, servers[0], handover.Config{Path: path, Patience: patience}); err != nil {
			t.Fatal(err)
		}
		c := dial(t, servers[0])
		c.say("PROXY TCP4 1.2.3.4 5.6.7.8")
		testkit.Eventually(t, "the connection is accepted", func() bool { return servers[0].Stats().Accepted == 1 })
		moved := make(chan handover.Report, 1)
		go func() { moved <- start(t, path, servers[1]) }()
		<-time.After(50 * time.Millisecond)
		c.say(" 9 10\r\none\n")
		if r := testkit.Receive(t, "the report", moved); r.Moved != 1 {
			t.Errorf("%+v, want 1 moved", r)
		}
		line, err := c.in.ReadString('\n')
		if err != nil || line[1:] != " 1 one\n" {
			t.Errorf("the client hears %q, %v", line, err)
		}
		c.say("two\n")
		c.hears("b 2 two")
	})
	t.Run("jobs", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "s")
		servers := []*loop.Server{lines("a"), lines("b")}
		for i, srv := range servers {
			srv.Accept = func(c *loop.Conn) loop.Handler {
				inner := accept(string(rune('a' + i)))(c).(*counter)
				return &offloading{inner}
			}
		}
		if _, err := open(t, servers[0], handover.Config{Path: path, Patience: time.Second}); err != nil {
			t.Fatal(err)
		}
		const clients = 20
		var wg sync.WaitGroup
		stop := make(chan struct{})
		for range clients {
			c := dial(t, servers[0])
			asked := make(chan int, 1)
			wg.Go(func() { // it does not wait for its answers
				n := 0
				for ; ; n++ {
					if _, err := fmt.Fprintf(c, "%d\n", n); err != nil {
						t.Error(err)
						break
					}
					select {
					case <-stop:
						asked <- n
						return
					case <-time.After(2 * time.Millisecond):
					}
				}
				asked <- n
			})
			wg.Go(func() {
				last := -1
				for n := 0; n != last+1 || last < 0; n++ {
					line, err := c.in.ReadString('\n')
					if want := fmt.Sprintf(" %d %d\n", n+1, n); err != nil || len(line) == 0 || line[1:] != want {
						t.Errorf("heard %q, %v; want %q", line, err, want)
						return
					}
					if last < 0 {
						select {
						case last = <-asked:
						default:
						}
					}
				}
			})
		}
		time.Sleep(50 * time.Millisecond)
		if r := start(t, path, servers[1]); r.Moved != clients {
			t.Errorf("%+v, want %d moved", r, clients)
		}
		close(stop)
		wg.Wait()
	})
}

// offloading answers each line by a job of some milliseconds.
type offloading struct{ *counter }

func (h *offloading) OnMessage(c *loop.Conn, line []byte) error {
	text := string(line)
	return loop.Offload(c, func(context.Context) int { time.Sleep(3 * time.Millisecond); return 0 }, func(c *loop.Conn, _ int) {
		h.N++
		_ = c.Send(fmt.Appendf(nil, "%s %d %s", h.Who, h.N, text))
	})
}

// Three successors at once take over one after the other, and one is left.
func TestThreeAtOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	a := lines("a")
	start(t, path, a)
	c := dial(t, a)
	c.say("one\n")
	c.hears("a 1 one")
	var wg sync.WaitGroup
	servers := []*loop.Server{lines("b"), lines("b"), lines("b")}
	var nodes [3]*node
	for i := range nodes {
		wg.Go(func() {
			var err error
			if nodes[i], err = open(t, servers[i], handover.Config{Path: path}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	c.say("two\n")
	c.hears("b 2 two")
	testkit.Eventually(t, "one process serves", func() bool {
		serving := 0
		for _, n := range nodes {
			select {
			case <-n.Retired():
			default:
				serving++
			}
		}
		return serving == 1
	})
}

// The end of a server, and a start right after it: the new one starts, with the address, while the
// old one drains.
func TestStopThenStart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	addr := testkit.FreeAddr(t)
	a, b := lines("a"), lines("b")
	a.Addr, b.Addr = "tcp://"+addr, "tcp://"+addr
	busy := make(chan struct{})
	a.Accept = func(c *loop.Conn) loop.Handler {
		c.SetBusy(true)
		close(busy)
		return accept("a")(c)
	}
	ctx, end := context.WithCancel(t.Context())
	h, err := handover.Open(ctx, a, handover.Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	if _, err := h.Ready(ctx); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- h.Run(ctx) }()
	old := dial(t, a)
	<-busy
	end()
	testkit.Eventually(t, "the server drains", a.Draining)
	start(t, path, b)
	c := dial(t, b)
	c.say("x\n")
	c.hears("b 1 x")
	old.say("y\n")
	old.hears("a 1 y")
	old.Close()
	if err := testkit.Receive(t, "the end of the old server", ended); err != nil {
		t.Error(err)
	}
}

// Newcomers without end hold up no handover, and one that fails costs none of them. Those that the
// server has no room for take no place of a connection that comes back.
func TestNewcomers(t *testing.T) {
	for _, full := range []bool{false, true} {
		t.Run(fmt.Sprintf("full %v", full), func(t *testing.T) {
			const conns = 20
			path := filepath.Join(t.TempDir(), "s")
			server := func(who string) *loop.Server {
				srv := lines(who)
				if full {
					srv.Limits.MaxConns = conns
				}
				return srv
			}
			a := server("a")
			start(t, path, a)
			var clients []*client
			for range conns {
				c := dial(t, a)
				c.say("one\nhal")
				c.hears("a 1 one")
				clients = append(clients, c)
			}
			stop := make(chan struct{})
			var knocking sync.WaitGroup
			var knocks, served atomic.Int64
			for range 4 {
				knocking.Go(func() {
					for ; ; knocks.Add(1) {
						select {
						case <-stop:
							return
						default:
						}
						nc, err := net.Dial("tcp", a.LocalAddr().String())
						if err != nil {
							if !full { // or it is refused at once
								t.Error(err)
							}
							continue
						}
						_ = nc.SetDeadline(time.Now().Add(patience))
						_, _ = io.WriteString(nc, "x\n")
						if line, err := bufio.NewReader(nc).ReadString('\n'); err == nil {
							served.Add(1)
						} else if errors.Is(err, os.ErrDeadlineExceeded) || !full {
							t.Errorf("a newcomer hears %q, %v", line, err)
						}
						nc.Close()
					}
				})
			}
			goOn := func(n int64) {
				t.Helper()
				more := knocks.Load() + n
				testkit.Eventually(t, "newcomers knock", func() bool { return knocks.Load() > more || t.Failed() })
			}
			for range 4 {
				goOn(20)
				bad := server("bad")
				bad.Accept = func(*loop.Conn) loop.Handler { return nil }
				if _, err := open(t, bad, handover.Config{Path: path}); err == nil {
					t.Error("a process that takes no connection takes over")
				}
			}
			goOn(20)
			if n := served.Load(); full && n > 0 {
				t.Errorf("%d newcomers were served above the limit", n)
			}
			began := time.Now()
			if r := start(t, path, server("b")); r.Moved < conns || len(r.Stayed) > 0 {
				t.Errorf("%+v, want at least %d moved", r, conns)
			}
			if took := time.Since(began); took > 3*time.Second {
				t.Errorf("the handover takes %v", took)
			}
			goOn(20)
			close(stop)
			knocking.Wait()
			for _, c := range clients {
				c.say("f\n")
				c.hears("b 2 half")
			}
		})
	}
}

// A sleeper's Save is slow. asked counts those since another connection had its turn.
type sleeper struct {
	*counter
	asked, most *atomic.Int32
	fails       *atomic.Bool
}

func (h sleeper) Save(c *loop.Conn) ([]byte, error) {
	time.Sleep(time.Millisecond)
	h.most.Store(max(h.most.Load(), h.asked.Add(1))) // of one loop
	if h.fails.Load() {
		return nil, errors.New("not now")
	}
	return h.counter.Save(c)
}

// Many connections whose Save is slow, and that cannot move yet, hold up no other.
func TestSlowSave(t *testing.T) {
	const conns = 200
	var asked, most atomic.Int32
	var fails atomic.Bool
	fails.Store(true)
	path := filepath.Join(t.TempDir(), "s")
	a := lines("a")
	a.NumLoops = 1
	a.Accept = func(c *loop.Conn) loop.Handler {
		if c.RemoteAddr().(*net.TCPAddr).IP.String() != "127.0.0.1" {
			return loop.HandlerFunc(func(c *loop.Conn, line []byte) error { asked.Store(0); return c.Send(line) })
		}
		return sleeper{accept("a")(c).(*counter), &asked, &most, &fails}
	}
	if _, err := open(t, a, handover.Config{Path: path, Patience: patience}); err != nil {
		t.Fatal(err)
	}
	for range conns {
		c := dial(t, a)
		c.say("one\n")
		c.hears("a 1 one")
	}
	nc, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}).Dial("tcp", a.LocalAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	_ = nc.SetDeadline(time.Now().Add(patience))
	other, done := &client{t, nc, bufio.NewReader(nc)}, make(chan handover.Report)
	go func() { done <- start(t, path, lines("b")) }()
	for n := 0; ; n++ {
		if _, err := io.WriteString(nc, "x\n"); err != nil {
			break // it has stayed, and was drained
		}
		if line, err := other.in.ReadString('\n'); err != nil || line != "x\n" {
			break
		}
		fails.Store(n < 200)
	}
	nc.Close()
	if r := <-done; r.Moved != conns {
		t.Errorf("%+v, want %d moved", r, conns)
	}
	if n := most.Load(); n > conns/4 {
		t.Errorf("another connection has waited for %d calls of Save", n)
	}
}

// What is large moves alone: neither process keeps many large states.
func TestLargeStates(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	var held, most atomic.Int32
	servers := []*loop.Server{lines("a"), lines("b")}
	for _, srv := range servers {
		srv.Accept = func(c *loop.Conn) loop.Handler {
			if state, moved := c.Saved(); moved {
				if held.Add(-1); len(state) != 1<<20 {
					t.Errorf("a state has %d bytes", len(state))
				}
			}
			return large{&held, &most}
		}
	}
	start(t, path, servers[0])
	for range 30 {
		dial(t, servers[0])
	}
	rig.HasConns(t, servers[0], 30)
	if r := start(t, path, servers[1]); r.Moved != 30 {
		t.Errorf("%+v, want 30 moved", r)
	}
	if n := most.Load(); n > 6 { // three in the rehearsal
		t.Errorf("%d large states were on their way at a time", n)
	}
}

type large struct{ held, most *atomic.Int32 }

func (large) OnMessage(*loop.Conn, []byte) error { return nil }
func (large) OnClose(*loop.Conn, error)          {}
func (h large) Save(*loop.Conn) ([]byte, error) {
	h.most.Store(max(h.most.Load(), h.held.Add(1)))
	return make([]byte, 1<<20), nil
}

// With an Accept that is slow a connection pauses for those of its batch, not for all, and the
// report says for how long.
func TestSlowAccept(t *testing.T) {
	const conns, slow = 160, 4 * time.Millisecond
	path := filepath.Join(t.TempDir(), "s")
	a, b := lines("a"), lines("b")
	b.NumLoops = 1
	var saved sync.Map
	var slept atomic.Int64 // more than conns*slow on a busy machine
	longest := make(chan time.Duration, conns)
	a.Accept = func(c *loop.Conn) loop.Handler { return timed{accept("a")(c).(*counter), &saved} }
	b.Accept = func(c *loop.Conn) loop.Handler {
		began := time.Now()
		time.Sleep(slow)
		slept.Add(int64(time.Since(began)))
		c.AfterFunc(0, func() {
			at, _ := saved.Load(c.RemoteAddr().String())
			longest <- time.Since(at.(time.Time))
		})
		return accept("b")(c)
	}
	start(t, path, a)
	for range conns {
		dial(t, a)
	}
	rig.HasConns(t, a, conns)
	r := start(t, path, b)
	var most time.Duration
	for range conns {
		most = max(most, testkit.Receive(t, "the turn of a connection", longest))
	}
	limit := time.Duration(slept.Load()) * 3 / 4
	if r.Moved != conns || most > limit || r.Longest < most/2 || r.Longest > most*2 {
		t.Errorf("%d moved with a pause of %v, reported as %v; want %d, less than %v, and the truth", r.Moved, most, r.Longest, conns, limit)
	}
}

// A new process that does not accept a batch within Timeout gets smaller ones.
func TestAcceptTooSlowForABatch(t *testing.T) {
	const conns, slow = 40, 30 * time.Millisecond
	path := filepath.Join(t.TempDir(), "s")
	a, b := lines("a"), lines("b")
	a.NumLoops, b.NumLoops = 1, 1
	b.Accept = func(c *loop.Conn) loop.Handler {
		time.Sleep(slow)
		return accept("b")(c)
	}
	cfg := handover.Config{Path: path, Timeout: 32 * slow / 2}
	if _, err := open(t, a, cfg); err != nil {
		t.Fatal(err)
	}
	var clients []*client
	for range conns {
		clients = append(clients, dial(t, a))
	}
	rig.HasConns(t, a, conns)
	n, err := open(t, b, cfg)
	if err != nil {
		t.Fatal(err)
	}
	if n.report.Moved != conns {
		t.Errorf("%d moved, want %d", n.report.Moved, conns)
	}
	for _, c := range clients {
		c.say("one\n")
		c.hears("b 1 one")
	}
}

// A timed notes when it was saved.
type timed struct {
	*counter
	saved *sync.Map
}

func (h timed) Save(c *loop.Conn) ([]byte, error) {
	h.saved.Store(c.RemoteAddr().String(), time.Now())
	return h.counter.Save(c)
}
