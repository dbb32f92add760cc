package handover_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/handover"
)

// serverEnv has the test's binary be a server: its serverConfig.
const serverEnv = "LOOPWHEEL_HANDOVER_SERVER"

func TestMain(m *testing.M) {
	if args := os.Getenv(serverEnv); args != "" {
		if err := serve(args); err != nil {
			fmt.Println("error", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// A serverConfig is what a process is to do.
type serverConfig struct {
	Addr, Path, Engine string
	Timeout, Patience  time.Duration
	StopAt             string // "accept", "ready": it says so there, and waits for a line on its input
	Dies               string // at the same places
	SlowAccept         time.Duration
	TLS                string // another address
	Others             others
	Files              int // how many it may have open; SIGUSR1 opens all of them
	WithState          bool
}

// others are addresses for connections of other kinds than those that are accepted.
type others struct {
	Pipe, Backend string // where clients are piped from, and to
	UDP, From     string // From: of Listener.AcceptFrom
	Dial          string // where to dial to, so often
	Dials         int
}

// add has the server serve them.
func (o *others) add(srv *loop.Server) error {
	from := loop.Listener{Name: "from", Accept: accept("n")}
	ln, err := net.Listen("tcp", o.From)
	if err == nil {
		from.AcceptFrom = ln
	} else if !errors.Is(err, syscall.EADDRINUSE) { // by the process before, from which it comes
		return err
	}
	srv.Listeners = append(srv.Listeners, from, loop.Listener{Addr: "udp://" + o.UDP, Accept: accept("n")},
		loop.Listener{Addr: "tcp://" + o.Pipe, Codec: codec.Raw{}, Accept: pipeTo("tcp://"+o.Backend, nil)})
	srv.OnStart = func(l *loop.Loop) {
		for i := l.Index(); i < o.Dials; i += srv.NumLoops {
			loop.Dialer{Codec: codec.Lines{}, MoveAs: strconv.Itoa(i), Timeout: time.Minute}.Dial(l, "tcp://"+o.Dial, func(c *loop.Conn, err error) loop.Handler {
				if err != nil {
					return nil
				}
				return accept("n")(c)
			})
		}
	}
	return nil
}

// at is a place where a process may wait, or die.
func (cfg *serverConfig) at(place string) {
	if cfg.StopAt == place {
		cfg.StopAt = ""
		fmt.Println(place)
	}
	if cfg.Dies == place {
		os.Exit(7)
	}
}

// emptyState is a State with nothing in it.
type emptyState struct{}

func (emptyState) Freeze() error           { return nil }
func (emptyState) Save(io.Writer) error    { return nil }
func (emptyState) Thaw()                   {}
func (emptyState) Restore(io.Reader) error { return nil }

// serve is a process that takes over, and hands over. It says what it does on its output.
func serve(text string) error {
	var cfg serverConfig
	if err := json.Unmarshal([]byte(text), &cfg); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	var moved atomic.Int32
	srv := &loop.Server{Addr: cfg.Addr, Codec: codec.Lines{}, NumLoops: 2, Timeouts: loop.Timeouts{Close: time.Second},
		Engine: map[string]loop.Engine{"": loop.EngineDefault, "gnet": loop.EngineGnet, "epoll": loop.EngineEpoll, "net": loop.EngineNet}[cfg.Engine],
		Logger: zerolog.New(os.Stderr).Level(zerolog.FatalLevel)}
	if cfg.TLS != "" {
		srv.Listeners = []loop.Listener{{Addr: cfg.TLS, TLS: &tls.Config{Certificates: []tls.Certificate{testkit.Certificate("localhost")}}}}
	}
	if cfg.Others.Pipe != "" {
		if err := cfg.Others.add(srv); err != nil {
			return err
		}
	}
	if os.Getenv("LOOPWHEEL_LOG") != "" {
		srv.Logger = zerolog.New(os.Stderr)
	}
	inner := accept("n")
	srv.Accept = func(c *loop.Conn) loop.Handler {
		if _, isMoved := c.Saved(); isMoved {
			if moved.Add(1) == 10 { // after the rehearsal
				cfg.at("accept")
			}
			time.Sleep(cfg.SlowAccept)
		}
		return inner(c)
	}
	hc := handover.Config{Path: cfg.Path, Timeout: cfg.Timeout, Patience: cfg.Patience}
	if cfg.WithState {
		hc.State = emptyState{}
	}
	hc.Report = func(r handover.Report) {
		fmt.Println("pause", r.Longest.Microseconds())
		fmt.Println("serves", r.Moved)
	}
	h, err := handover.Open(ctx, srv, hc)
	if err != nil {
		return err
	}
	defer h.Close()
	if cfg.Files > 0 {
		limit := syscall.Rlimit{Cur: uint64(cfg.Files), Max: uint64(cfg.Files)}
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
			return err
		}
		fill := make(chan os.Signal, 1)
		signal.Notify(fill, syscall.SIGUSR1)
		go func() {
			<-fill
			for {
				if _, err := syscall.Open(os.DevNull, 0, 0); err != nil {
					fmt.Println("full")
					return
				}
			}
		}()
	}
	cfg.at("ready")
	go func() { // the test asks for the goroutines, and its end is this process' end
		for in := bufio.NewScanner(os.Stdin); in.Scan(); {
			fmt.Println("goroutines", runtime.NumGoroutine())
		}
		os.Exit(3)
	}()
	return h.Run(ctx)
}

// A process is a server of its own.
type process struct {
	t     *testing.T
	cmd   *exec.Cmd
	in    io.WriteCloser
	lines chan string // closed when it has ended
	last  string      // of these
}

func runWith(t *testing.T, cfg serverConfig) *process {
	t.Helper()
	text, err := json.Marshal(cfg)
	if err != nil {
		t.Fatal(err)
	}
	p := &process{t: t, cmd: exec.Command(os.Args[0]), lines: make(chan string, 10)}
	p.cmd.Env = append(os.Environ(), serverEnv+"="+string(text))
	p.cmd.Stderr = os.Stderr
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		for s := bufio.NewScanner(out); s.Scan(); {
			p.last = s.Text()
			p.lines <- s.Text()
		}
		_ = p.cmd.Wait()
		close(p.lines)
	}()
	t.Cleanup(p.kill)
	return p
}

// says waits for a line that begins with a word, and returns the number after it; false: the
// process has ended without it.
func (p *process) says(word string) (n int, ok bool) {
	p.t.Helper()
	late := time.After(time.Minute)
	for {
		select {
		case line, open := <-p.lines:
			if !open {
				return 0, false
			}
			if rest, ok := strings.CutPrefix(line+" ", word+" "); ok {
				n, _ = strconv.Atoi(strings.TrimSpace(rest))
				return n, true
			}
		case <-late:
			p.t.Fatalf("a server does not say %q", word)
		}
	}
}

func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	for range p.lines {
	}
}

// ends waits for the process' own end.
func (p *process) ends() {
	p.t.Helper()
	if _, said := p.says("nothing more"); said || p.cmd.ProcessState.ExitCode() != 0 {
		p.t.Errorf("a server that has handed over ends with %v", p.cmd.ProcessState)
	}
}

// files returns how many descriptors the process has: 0 if it has ended.
func (p *process) files() int {
	files, _ := os.ReadDir(fmt.Sprintf("/proc/%d/fd", p.cmd.Process.Pid))
	return len(files)
}

func (p *process) goroutines() int {
	_, _ = io.WriteString(p.in, "\n")
	n, _ := p.says("goroutines")
	return n
}

// A crowd are clients that send numbered lines, and get numbered answers.
type crowd struct {
	t       *testing.T
	think   time.Duration
	end     atomic.Bool
	clients sync.WaitGroup
	mu      sync.Mutex
	waits   []time.Duration // for each answer
	broken  int             // connections that have ended
}

func (c *crowd) join(addr string, n int, cfg *tls.Config) {
	c.t.Helper()
	c.joinBy(func() (net.Conn, error) { return net.Dial("tcp", addr) }, n, cfg)
}

func (c *crowd) joinBy(dial func() (net.Conn, error), n int, cfg *tls.Config) {
	c.t.Helper()
	for range n {
		nc, err := dial()
		if err != nil {
			c.t.Fatal(err)
		}
		_ = nc.SetDeadline(time.Now().Add(time.Minute))
		if cfg != nil {
			nc = tls.Client(nc, cfg)
		}
		in := bufio.NewReader(nc)
		_, _ = io.WriteString(nc, "1\n") // when there is an answer it has been accepted
		if answer, err := in.ReadString('\n'); err != nil {
			c.t.Fatal(answer, err)
		}
		c.clients.Go(func() {
			defer nc.Close()
			c.talk(nc, in)
		})
	}
}

// talk goes on until the end, or that of its connection. A wrong number is a failure in each case.
func (c *crowd) talk(nc net.Conn, in *bufio.Reader) {
	var waits []time.Duration
	broken := 0
	for n := 2; !c.end.Load() && broken == 0; n++ {
		began := time.Now()
		_ = nc.SetDeadline(began.Add(time.Minute))
		_, err := fmt.Fprintf(nc, "%d\n", n)
		var answer string
		if err == nil {
			answer, err = in.ReadString('\n')
		}
		switch want := fmt.Sprintf("n %d %d\n", n, n); {
		case errors.Is(err, os.ErrDeadlineExceeded):
			c.t.Errorf("no answer to %d", n)
			broken++
		case err != nil:
			broken++
		case answer != want:
			c.t.Errorf("%q, want %q", answer, want)
			broken++
		}
		waits = append(waits, time.Since(began))
		time.Sleep(rand.N(2 * c.think)) // a device is not busy all the time
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waits = append(c.waits, waits...)
	c.broken += broken
}

// leave ends all clients, and returns how many had been broken.
func (c *crowd) leave() int {
	c.end.Store(true)
	c.clients.Wait()
	return c.broken
}

// counts answers lines as a counter does, for those whose pipe ends here.
func counts(ln net.Listener) {
	for {
		nc, err := ln.Accept()
		if err != nil {
			return
		}
		go func() {
			defer nc.Close()
			in := bufio.NewScanner(nc)
			for n := 1; in.Scan(); n++ {
				if _, err := fmt.Fprintf(nc, "n %d %s\n", n, in.Text()); err != nil {
					return
				}
			}
		}()
	}
}

// Handovers in a row, under load, lose nothing, double nothing, and leave nothing behind, whatever
// kind a connection is of: of 20, 9 are plain, 6 TLS, 2 are ends of pipes, 2 are dialed, and one is
// a session of UDP. With LOOPWHEEL_SLOW they are 10,000, or LOOPWHEEL_CONNS.
func TestHandoversUnderLoad(t *testing.T) {
	conns, times, rate := 200, 3, 200*time.Microsecond // one message in that time
	if os.Getenv("LOOPWHEEL_SLOW") != "" {
		conns, times, rate = 10_000, 30, 50*time.Microsecond
		if n, err := strconv.Atoi(os.Getenv("LOOPWHEEL_CONNS")); err == nil {
			conns, rate = n, rate*time.Duration(conns)/time.Duration(n)
		}
		testkit.NeedFiles(t, 2*conns)
	} else if testing.Short() {
		times = 2
	}
	part := conns / 20
	addr, tlsAddr := testkit.FreeAddr(t), testkit.FreeAddr(t)
	peer, end := newBackend(t, nil), newBackend(t, nil) // of what is dialed, and of pipes
	go counts(end)
	cfg := serverConfig{Addr: "tcp://" + addr, TLS: "tcp://" + tlsAddr, Path: filepath.Join(t.TempDir(), "s"),
		Timeout: 20 * time.Second, Patience: time.Millisecond,
		Others: others{Pipe: testkit.FreeAddr(t), Backend: end.Addr().String(), UDP: testkit.FreeAddr(t), From: testkit.FreeAddr(t),
			Dial: peer.Addr().String(), Dials: 2 * part}}
	server := runWith(t, cfg)
	server.says("serves")
	c := &crowd{t: t, think: time.Duration(conns) * rate}
	c.join(addr, 8*part, nil)
	c.join(cfg.Others.From, part, nil)
	c.join(tlsAddr, 6*part, &tls.Config{InsecureSkipVerify: true})
	c.join(cfg.Others.Pipe, 2*part, nil)
	c.joinBy(peer.Accept, 2*part, nil)
	c.joinBy(func() (net.Conn, error) { return net.Dial("udp", cfg.Others.UDP) }, part, nil)
	conns += 2 * part // the other ends of pipes
	files, goroutines, longest := server.files(), server.goroutines(), time.Duration(0)
	for range times {
		next := runWith(t, cfg)
		pause, _ := next.says("pause")
		if n, ok := next.says("serves"); n != conns || !ok {
			t.Fatalf("%d connections have moved, want %d", n, conns)
		}
		longest = max(longest, time.Duration(pause)*time.Microsecond)
		server.ends()
		server = next
	}
	// The last newcomers may still be on their way to their loops.
	testkit.Eventually(t, fmt.Sprintf("at most %d descriptors and %d goroutines, as before", files, goroutines), func() bool {
		return server.files() <= files && server.goroutines() <= goroutines
	})
	if n := c.leave(); n > 0 {
		t.Errorf("%d connections were broken", n)
	}
	slices.Sort(c.waits)
	n := len(c.waits)
	t.Logf("%d connections, %d handovers: longest on its way %v; %d answers: p50 %v, p99 %v, p99.99 %v, longest %v",
		conns, times, longest, n, c.waits[n/2], c.waits[n*99/100], c.waits[n*9999/10000], c.waits[n-1])
}

// A fault happens to one of two processes at some instant of a handover. Without a kill no client
// notices anything; a kill costs what the dead process owned. In the end one process serves, and
// the next handover succeeds.
func TestFaults(t *testing.T) {
	const timeout = time.Second
	rounds, conns := 1, 100
	all := os.Getenv("LOOPWHEEL_SLOW") != ""
	if all {
		rounds, conns = 4, 2000
	}
	type fault struct {
		name   string
		old    bool // it happens to the old process
		signal syscall.Signal
		lasts  time.Duration // of SIGSTOP
		dies   string
	}
	faults := []fault{
		{name: "old killed", old: true, signal: syscall.SIGKILL},
		{name: "new killed", signal: syscall.SIGKILL},
		{name: "old stopped", old: true, signal: syscall.SIGSTOP, lasts: 2 * timeout},
		{name: "new stopped", signal: syscall.SIGSTOP, lasts: 2 * timeout},
		{name: "new stopped for an instant", signal: syscall.SIGSTOP, lasts: timeout / 5},
		{name: "old told to end", old: true, signal: syscall.SIGTERM},
		{name: "new told to end", signal: syscall.SIGTERM},
		{name: "old without descriptors", old: true, signal: syscall.SIGUSR1},
		{name: "new dies before it is ready", dies: "ready"},
		{name: "new dies in Accept", dies: "accept"},
	}
	if testing.Short() {
		faults = faults[:4]
	}
	for i, f := range faults {
		for _, engine := range []string{"gnet", "epoll", "net"} {
			if !all && (i%3 != len(engine)%3 || f.signal == syscall.SIGUSR1) {
				continue // the nightly run has all
			}
			for _, together := range []bool{false, true} {
				if !all && together == (i%2 == 0) {
					continue
				}
				t.Run(fmt.Sprintf("%s, %s, with a State %v", f.name, engine, together), func(t *testing.T) {
					for range rounds {
						path, addr := filepath.Join(t.TempDir(), "s"), testkit.FreeAddr(t)
						cfg := serverConfig{Addr: "tcp://" + addr, Path: path, Timeout: timeout, Patience: time.Millisecond, WithState: together,
							Engine: engine, SlowAccept: 100 * time.Microsecond}
						if f.signal == syscall.SIGUSR1 {
							cfg.Files = 2*conns + 300
						}
						old := runWith(t, cfg)
						old.says("serves")
						c := &crowd{t: t, think: 10 * time.Millisecond}
						c.join(addr, conns, nil)
						if f.signal == syscall.SIGUSR1 {
							_ = old.cmd.Process.Signal(f.signal)
							old.says("full")
						}
						cfg.StopAt, cfg.Dies = "accept", f.dies
						next := runWith(t, cfg)
						victim := next
						if f.old {
							victim = old
						}
						if f.dies == "" {
							next.says("accept")
							time.Sleep(rand.N(20 * time.Millisecond)) // to any point of the move
							_ = victim.cmd.Process.Signal(f.signal)
							time.Sleep(f.lasts)
							_ = victim.cmd.Process.Signal(syscall.SIGCONT)
						} else {
							next.says("nothing")
						}
						testkit.Eventually(t, "a newcomer is served", func() bool { return served(addr) })
						cfg.StopAt, cfg.Dies = "", ""
						third := runWith(t, cfg)
						moved, ok := third.says("serves")
						if !ok {
							t.Fatalf("the next handover fails: its process ends with %v: %s", third.cmd.ProcessState, third.last)
						}
						if !served(addr) {
							t.Error("after the next handover a newcomer is not served")
						}
						for _, p := range []*process{old, next} {
							if !ended(p) {
								p.says("nothing")
							}
						}
						broken := c.leave()
						mayBreak := f.signal == syscall.SIGKILL || f.dies == "accept" || f.name == "new told to end"
						if broken > 0 && !mayBreak {
							t.Errorf("%d connections were broken, want none", broken)
						}
						if broken+moved < conns || f.dies == "ready" && moved < conns {
							t.Errorf("%d connections were broken and %d moved, want %d at least", broken, moved, conns)
						}
						third.kill()
					}
				})
			}
		}
	}
}

// served reports whether a new client gets an answer.
func served(addr string) bool {
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		return false
	}
	defer nc.Close()
	_ = nc.SetDeadline(time.Now().Add(time.Second))
	if _, err = io.WriteString(nc, "x\n"); err != nil {
		return false
	}
	answer, err := bufio.NewReader(nc).ReadString('\n')
	return err == nil && answer == "n 1 x\n"
}

// ended reports whether a process has ended.
func ended(p *process) bool {
	for {
		select {
		case _, open := <-p.lines:
			if !open {
				return true
			}
		default:
			return false
		}
	}
}
