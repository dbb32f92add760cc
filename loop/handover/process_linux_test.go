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

// This file attacks handovers between processes. A server here is the test's binary, and the test
// is its clients.

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
	Addr, TLS, Path, Engine string
	Timeout, Patience       time.Duration
	StartTimeout, Delay     time.Duration // Delay is that of the drain
	WithState               bool
	SlowAccept              time.Duration
	Place                   string // where it does what it Does: "begin", "opened", "freeze", "restore", "accept", "report"
	Number                  int32  // of the calls of Accept that come before
	Does                    string // "die", "stop", "panic", "fill the disk", "use up descriptors", "allow no descriptors", "allow few descriptors", "hang" while there is the file Path.hangs
	Handler, Codec          versions
	Pipe, Backend           string // clients of Pipe are piped to Backend; "": nor is there UDP
	Dial                    string // where to dial to, so often
	Dials                   int
	HidesPeers              bool // the system does not tell the numbers of processes
}

// The versions of a state that a program writes, and reads: all up to that.
type versions struct{ Writes, Reads byte }

func (v versions) read(state []byte) ([]byte, error) {
	if len(state) == 0 || state[0] > v.Reads {
		return nil, fmt.Errorf("state %q is of a later version than %d", state, v.Reads)
	}
	return state[1:], nil
}

type versionedCodec struct {
	codec.Lines
	versions
}

func (c versionedCodec) New() codec.Codec                  { return &c }
func (c *versionedCodec) Save() ([]byte, error)            { return []byte{c.Writes}, nil }
func (c *versionedCodec) Restore(state []byte) (err error) { _, err = c.read(state); return err }

type versionedCounter struct {
	counter
	versions
}

func (h *versionedCounter) Save(*loop.Conn) ([]byte, error) {
	return fmt.Appendf([]byte{h.Writes}, "%d %d", h.N, time.Now().UnixNano()), nil
}

// addKinds has the server serve pipes, UDP and what it dials.
func (cfg *serverConfig) addKinds(srv *loop.Server) {
	if cfg.Pipe == "" {
		return
	}
	srv.Listeners = append(srv.Listeners, loop.Listener{Addr: "udp://127.0.0.1:0"},
		loop.Listener{Addr: "tcp://" + cfg.Pipe, Codec: codec.Raw{}, Accept: pipeTo("tcp://"+cfg.Backend, nil)})
	srv.OnStart = func(l *loop.Loop) {
		for i := l.Index(); i < cfg.Dials; i += srv.NumLoops {
			loop.Dialer{Codec: srv.Codec, MoveAs: strconv.Itoa(i)}.Dial(l, "tcp://"+cfg.Dial, func(c *loop.Conn, err error) loop.Handler {
				if err != nil {
					return nil
				}
				return srv.Accept(c)
			})
		}
	}
}

// at is a place of the program.
func (cfg *serverConfig) at(place string) {
	if cfg.Place != place {
		return
	}
	if misbehave(cfg.Does); cfg.Does == "hang" && cfg.hangs() {
		fmt.Println("hangs")
		for cfg.hangs() {
			time.Sleep(10 * time.Millisecond)
		}
	}
}

func (cfg *serverConfig) hangs() bool {
	_, err := os.Stat(cfg.Path + ".hangs")
	return err == nil
}

func misbehave(how string) {
	switch how {
	case "die":
		os.Exit(7)
	case "stop":
		_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
	case "panic":
		panic("Accept")
	case "leave its directory":
		_ = os.Chdir("/")
	case "fill the disk": // no file may grow
		signal.Ignore(syscall.SIGXFSZ)
		_ = syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Max: syscall.RLIM_INFINITY & (1<<63 - 1)})
	case "allow no descriptors":
		limitFiles(3)
	case "allow few descriptors":
		limitFiles(140)
	case "use up descriptors":
		files, _ := os.ReadDir("/proc/self/fd")
		most := uint64(len(files) + 100)
		_ = syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: most, Max: most})
		for range 100 { // not what a loop gives back in the meantime
			_, _ = syscall.Open(os.DevNull, syscall.O_CLOEXEC, 0)
		}
	}
}

// limitFiles sets the limit of open files that this process may raise again.
func limitFiles(n uint64) {
	var l syscall.Rlimit
	_ = syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l)
	l.Cur = min(n, l.Max)
	_ = syscall.Setrlimit(syscall.RLIMIT_NOFILE, &l)
}

// A restoring is a State with nothing in it.
type restoring struct{ cfg *serverConfig }

func (s restoring) Freeze() error {
	s.cfg.at("freeze")
	return nil
}
func (restoring) Save(io.Writer) error { return nil }
func (s restoring) Thaw() {
	if s.cfg.Place == "freeze" {
		limitFiles(1 << 62)
	}
}
func (s restoring) Restore(r io.Reader) error { s.cfg.at("restore"); return nil }

// serve is a process that takes over, and hands over. It says what it does on its output.
func serve(text string) error {
	var cfg serverConfig
	if err := json.Unmarshal([]byte(text), &cfg); err != nil {
		return err
	}
	if cfg.HidesPeers {
		handover.HidePeers()
	}
	cfg.at("begin")
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	var moved atomic.Int32
	var pauses pauses
	srv := &loop.Server{Addr: cfg.Addr, Codec: versionedCodec{versions: cfg.Codec}, NumLoops: 2, Timeouts: loop.Timeouts{Close: time.Second}, Drain: loop.Drain{Delay: cfg.Delay},
		Engine: map[string]loop.Engine{"": loop.EngineDefault, "gnet": loop.EngineGnet, "epoll": loop.EngineEpoll, "net": loop.EngineNet}[cfg.Engine],
		Logger: zerolog.New(os.Stderr).Level(zerolog.FatalLevel)}
	if cfg.TLS != "" {
		srv.Listeners = []loop.Listener{{Addr: cfg.TLS, TLS: &tls.Config{Certificates: []tls.Certificate{testkit.Certificate("localhost")}}}}
	}
	cfg.addKinds(srv)
	if os.Getenv("LOOPWHEEL_LOG") != "" {
		srv.Logger = zerolog.New(os.Stderr).With().Timestamp().Int("self", os.Getpid()).Logger()
	}
	srv.Accept = func(c *loop.Conn) loop.Handler {
		h := &versionedCounter{counter{Who: strconv.Itoa(os.Getpid())}, cfg.Handler}
		if state, isMoved := c.Saved(); isMoved {
			if n := moved.Add(1); n == cfg.Number || n > cfg.Number && cfg.Does == "panic" && n%3 == 0 {
				cfg.at("accept")
			}
			time.Sleep(cfg.SlowAccept)
			var since int64
			if state, err := h.read(state); err != nil {
				return nil
			} else if _, err = fmt.Sscan(string(state), &h.N, &since); err != nil {
				return nil
			}
			c.AfterFunc(0, func() { pauses.add(time.Since(time.Unix(0, since))) })
		}
		return h
	}
	hc := handover.Config{Path: cfg.Path, Timeout: cfg.Timeout, StartTimeout: cfg.StartTimeout, Patience: cfg.Patience, PIDFile: cfg.Path + ".pid"}
	if cfg.WithState {
		hc.State = restoring{&cfg}
	}
	hc.Report = func(r handover.Report) {
		cfg.at("report")
		for _, a := range srv.Addrs() {
			if a, ok := a.(*net.UDPAddr); ok {
				fmt.Println("udp", a.Port)
			}
		}
		fmt.Println("predecessor", r.Predecessor)
		fmt.Println("usual", pauses.percentiles(.99)[0].Microseconds())
		fmt.Println("pause", r.Longest.Microseconds())
		fmt.Println("stayed", r.Stayed)
		fmt.Println("serves", r.Moved)
	}
	h, err := handover.Open(ctx, srv, hc)
	if err != nil {
		return err
	}
	defer h.Close()
	fmt.Println("opened")
	cfg.at("opened")
	faults := make(chan os.Signal, 1)
	signal.Notify(faults, syscall.SIGUSR1, syscall.SIGUSR2)
	go func() {
		for s := range faults {
			misbehave(map[os.Signal]string{syscall.SIGUSR1: "use up descriptors", syscall.SIGUSR2: "fill the disk"}[s])
		}
	}()
	go func() { // the test asks, and its end is this process' end
		for in := bufio.NewScanner(os.Stdin); in.Scan(); {
			st := srv.Stats()
			fmt.Println(in.Text(), map[string]uint64{"goroutines": uint64(runtime.NumGoroutine()), "in": st.MovedIn, "out": st.ClosedBy["moved"],
				"heap": heap()}[in.Text()])
		}
		os.Exit(3)
	}()
	h.RestartOn(syscall.SIGHUP)
	err = h.Run(ctx)
	fmt.Println("out", srv.Stats().ClosedBy["moved"])
	return err
}

// pauses are how long connections, or answers, had to wait.
type pauses struct {
	mu  sync.Mutex
	all []time.Duration
}

func (p *pauses) add(d time.Duration) {
	p.mu.Lock()
	p.all = append(p.all, d)
	p.mu.Unlock()
}

func (p *pauses) percentiles(each ...float64) (d []time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	slices.Sort(p.all)
	for _, q := range each {
		d = append(d, append(p.all, 0)[max(0, min(len(p.all)-1, int(float64(len(p.all))*q)))].Round(10*time.Microsecond))
	}
	return d
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// A process is a server of its own.
type process struct {
	t     *testing.T
	cmd   *exec.Cmd
	pid   int
	in    io.WriteCloser
	lines chan string   // closed when it has ended
	ended chan struct{} // the same
	said  []string
}

func runWith(t *testing.T, cfg serverConfig, changes ...func(*exec.Cmd)) *process {
	t.Helper()
	text, err := json.Marshal(cfg)
	if err != nil {
		t.Fatal(err)
	}
	p := &process{t: t, cmd: exec.Command(os.Args[0]), lines: make(chan string, 100), ended: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), serverEnv+"="+string(text))
	p.cmd.Stderr = os.Stderr
	for _, change := range changes {
		change(p.cmd)
	}
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
	p.pid = p.cmd.Process.Pid
	go func() {
		for s := bufio.NewScanner(out); s.Scan(); {
			p.lines <- s.Text()
		}
		_ = p.cmd.Wait()
		close(p.lines)
		close(p.ended)
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
			p.said = append(p.said, line)
			if rest, ok := strings.CutPrefix(line+" ", word+" "); ok {
				n, _ = strconv.Atoi(strings.TrimSpace(rest))
				return n, true
			}
		case <-late:
			p.t.Fatalf("a server does not say %q; it has said %q", word, p.said)
		}
	}
}

// asks asks for a number.
func (p *process) asks(word string) int {
	_, _ = io.WriteString(p.in, word+"\n")
	n, _ := p.says(word)
	return n
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

// dies waits for the process' end, and reports whether it was at the place where it dies.
func (p *process) dies() bool {
	_, said := p.says("nothing more")
	return !said && p.cmd.ProcessState.ExitCode() == 7
}

// hasEnded reports whether the process has ended.
func (p *process) hasEnded() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// retired reports whether the process has ended as it should.
func (p *process) retired() bool { return p.hasEnded() && p.cmd.ProcessState.ExitCode() == 0 }

// files returns how many descriptors the process has: 0 if it has ended.
func (p *process) files() int {
	files, _ := os.ReadDir(fmt.Sprintf("/proc/%d/fd", p.pid))
	return len(files)
}

// A crowd are clients that send numbered lines, several at a time and the last one in halves, and
// check each answer.
type crowd struct {
	t      *testing.T
	think  time.Duration // between two writes, on average
	end    chan struct{}
	again  chan struct{} // closed when those that were cut may dial again
	peers  sync.WaitGroup
	round  atomic.Int64
	mu     sync.Mutex
	change *sync.Cond
	seen   map[*talker]int64 // the round in which its last answers were asked for
	cut    map[*talker]error
	waits  pauses // for answers
	count  int    // of answers
}

type talker struct {
	dial  func() (net.Conn, error)
	isUDP bool
	by    string // the process that has answered last
}

func newCrowd(t *testing.T, think time.Duration) *crowd {
	c := &crowd{t: t, think: think, end: make(chan struct{}), again: make(chan struct{}),
		seen: make(map[*talker]int64), cut: make(map[*talker]error)}
	c.change = sync.NewCond(&c.mu)
	t.Cleanup(c.leave)
	return c
}

// join adds n clients, and returns when each has had an answer. nil: they are plain.
func (c *crowd) join(addr string, n int, cfg *tls.Config) {
	c.joinBy(func() (net.Conn, error) {
		nc, err := net.Dial("tcp", addr)
		if err == nil && cfg != nil {
			nc = tls.Client(nc, cfg)
		}
		return nc, err
	}, n, false)
}

func (c *crowd) joinBy(dial func() (net.Conn, error), n int, isUDP bool) {
	c.t.Helper()
	for n > 0 {
		for range min(n, 200) { // or their handshakes would be late
			p := &talker{dial: dial, isUDP: isUDP}
			c.mu.Lock()
			c.seen[p] = -1
			c.mu.Unlock()
			c.peers.Go(func() { c.live(p) })
			n--
		}
		if cut := c.await(0); cut > 0 {
			for _, err := range c.cut {
				c.t.Fatalf("%d of the clients are not served: %v", cut, err)
			}
		}
	}
}

// live has p talk, on one connection after the other.
func (c *crowd) live(p *talker) {
	for {
		err := c.talk(p)
		c.mu.Lock()
		c.cut[p] = err
		again := c.again
		c.change.Broadcast()
		c.mu.Unlock()
		select {
		case <-c.end:
			return
		case <-again:
		}
	}
}

// talk goes on until the end, or that of the connection. A wrong answer is a failure in each case.
func (c *crowd) talk(p *talker) error {
	nc, err := p.dial()
	if err != nil {
		return err
	}
	defer nc.Close()
	in := bufio.NewReaderSize(nc, 512)
	head := 0 // bytes of line n that have gone before
	for n := 1; ; {
		round, whole := c.round.Load(), 1+rand.N(3)
		var text []byte
		for i := n; i < n+whole; i++ {
			text = fmt.Appendf(text, "%d\n", i)
		}
		half := fmt.Appendf(nil, "%d\n", n+whole)
		half = half[:rand.N(len(half))]
		if p.isUDP { // a datagram is one message
			text, half, whole = fmt.Appendf(nil, "%d\n", n), nil, 1
		}
		began := time.Now()
		_ = nc.SetDeadline(began.Add(time.Minute))
		if _, err := nc.Write(append(text, half...)[head:]); err != nil {
			return err
		}
		for end := n + whole; n < end; n++ {
			answer, err := in.ReadString('\n')
			if errors.Is(err, os.ErrDeadlineExceeded) {
				c.t.Errorf("no answer to %d from %s at %v", n, p.by, nc.RemoteAddr())
			}
			if err != nil {
				return err
			}
			by, got, _ := strings.Cut(answer, " ")
			if want := fmt.Sprintf("%d %d\n", n, n); got != want {
				c.t.Errorf("%s answers %q, want %q", by, got, want)
				return errors.New("a wrong answer")
			}
			p.by = by
		}
		head = len(half)
		c.mu.Lock()
		c.seen[p] = round
		c.waits.add(time.Since(began))
		c.count += whole
		c.change.Signal()
		c.mu.Unlock()
		select {
		case <-c.end:
			return nil
		case <-time.After(rand.N(2 * c.think)):
		}
	}
}

// settle waits until each client has asked and got an answer, or knows that it is cut, and returns
// how many are.
func (c *crowd) settle() (cut int) { return c.await(c.round.Add(1)) }

func (c *crowd) await(round int64) (cut int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for p := range c.seen {
		for c.seen[p] < round && c.cut[p] == nil {
			c.change.Wait()
		}
	}
	return len(c.cut)
}

// mend has the clients that are cut dial again.
func (c *crowd) mend() {
	c.mu.Lock()
	clear(c.cut)
	close(c.again)
	c.again = make(chan struct{})
	c.mu.Unlock()
	if n := c.settle(); n > 0 {
		c.t.Fatalf("%d new connections are cut", n)
	}
}

// leave ends all clients.
func (c *crowd) leave() {
	select {
	case <-c.end:
	default:
		close(c.end)
	}
	c.peers.Wait()
}

// number returns a number of the environment.
func number(name string, otherwise int) int {
	if n, err := strconv.Atoi(os.Getenv(name)); err == nil {
		return n
	}
	return otherwise
}

// Handovers in a row, under load, lose nothing, double nothing, and leave nothing behind, whatever
// kind a connection is of: of 20, 7 are plain, 6 TLS, 4 the ends of two pipes, 2 dialed, and one is
// a session of UDP.
func TestHandoversUnderLoad(t *testing.T) {
	conns, times, rate := 200, 3, 5000 // writes a second, of two messages on average
	if os.Getenv("LOOPWHEEL_SLOW") != "" {
		conns, times, rate = 10_000, 30, 10_000
	}
	part, times, rate := number("LOOPWHEEL_CONNS", conns)/20, number("LOOPWHEEL_HANDOVERS", times), number("LOOPWHEEL_RATE", rate)
	conns = 20 * part
	testkit.NeedFiles(t, conns+3*part+100)
	addr, tlsAddr := testkit.FreeAddr(t), testkit.FreeAddr(t)
	dialed, end := newBackend(t, nil), testkit.Serve(t, func(nc net.Conn) { // at the end of each pipe
		for n, in := 1, bufio.NewScanner(nc); in.Scan(); n++ {
			_, _ = fmt.Fprintf(nc, "end %d %s\n", n, in.Text())
		}
	})
	cfg := serverConfig{Addr: "tcp://" + addr, TLS: "tcp://" + tlsAddr, Path: filepath.Join(t.TempDir(), "s"),
		Pipe: testkit.FreeAddr(t), Backend: end.Addr().String(), Dial: dialed.Addr().String(), Dials: 2 * part,
		Timeout: 20 * time.Second, Patience: 100 * time.Millisecond, Engine: os.Getenv("LOOPWHEEL_ENGINE")}
	server := runWith(t, cfg)
	port, ok := server.says("udp")
	if !ok {
		t.Fatalf("the first process says %q", server.said)
	}
	c := newCrowd(t, time.Duration(conns)*time.Second/time.Duration(rate))
	c.join(addr, 7*part, nil)
	c.join(tlsAddr, 6*part, &tls.Config{InsecureSkipVerify: true})
	c.join(cfg.Pipe, 2*part, nil)
	c.joinBy(dialed.Accept, 2*part, false)
	c.joinBy(func() (net.Conn, error) { return net.Dial("udp", fmt.Sprint("127.0.0.1:", port)) }, part, true)
	files, goroutines, heap := server.files(), server.asks("goroutines"), server.asks("heap")
	c.mu.Lock()
	c.waits.all, c.count = nil, 0
	c.mu.Unlock()
	var usual, longest pauses
	began := time.Now()
	for range times {
		next := runWith(t, cfg)
		p99, _ := next.says("usual")
		pause, _ := next.says("pause")
		if n, ok := next.says("serves"); n != conns || !ok {
			t.Fatalf("%d connections have moved, want %d; it says %q", n, conns, next.said)
		}
		usual.add(time.Duration(p99) * time.Microsecond)
		longest.add(time.Duration(pause) * time.Microsecond)
		if n, _ := server.says("out"); n != conns {
			t.Errorf("the old process counts %d that have moved, want %d", n, conns)
		}
		server.ends()
		server = next
	}
	took := time.Since(began)
	if n := c.settle(); n > 0 {
		t.Errorf("%d connections were cut", n)
	}
	testkit.Eventually(t, fmt.Sprintf("at most %d descriptors and %d goroutines, as before", files, goroutines), func() bool {
		return server.files() <= files && server.asks("goroutines") <= goroutines
	})
	after := server.asks("heap")
	if after > heap*5/4+1<<20 {
		t.Errorf("the heap has %d bytes, and had %d before", after, heap)
	}
	c.leave()
	t.Logf("%d connections, %d handovers, %.0f messages/s; heap %d before, %d after", conns, times, float64(c.count)/took.Seconds(), heap, after)
	t.Logf("pauses, median and most of the handovers: p99 %v, longest %v", usual.percentiles(.5, 1), longest.percentiles(.5, 1))
	t.Logf("answers: p50, p99, p99.9, p99.99, longest: %v", c.waits.percentiles(.5, .99, .999, .9999, 1))
}

// A program goes from one version of a state to the next one, and back, by a version that reads
// both. Without that one the handover fails, and nothing has happened.
func TestVersions(t *testing.T) {
	for name, set := range map[string]func(cfg *serverConfig, v versions){
		"of the handler": func(cfg *serverConfig, v versions) { cfg.Handler = v },
		"of the codec":   func(cfg *serverConfig, v versions) { cfg.Codec = v },
	} {
		t.Run(name, func(t *testing.T) {
			addr := testkit.FreeAddr(t)
			cfg := serverConfig{Addr: "tcp://" + addr, Path: filepath.Join(t.TempDir(), "s")}
			set(&cfg, versions{1, 1})
			server := runWith(t, cfg)
			server.says("serves")
			c := newCrowd(t, 5*time.Millisecond)
			c.join(addr, 20, nil)
			for _, step := range []struct {
				versions
				fails bool
			}{{versions{1, 2}, false}, {versions{2, 2}, false}, {versions{1, 1}, true}, {versions{1, 2}, false}, {versions{1, 1}, false}} {
				set(&cfg, step.versions)
				next := runWith(t, cfg)
				n, ok := next.says("serves")
				if last := next.said[len(next.said)-1]; step.fails && !strings.Contains(last, "takes none of the connections") {
					t.Fatalf("%+v: it says %q, and takes %d", step, last, n)
				}
				if !step.fails {
					if !ok || n != 20 {
						t.Fatalf("%+v: %d have moved, want 20: %q", step, n, next.said)
					}
					server.ends()
					server = next
				}
				if cut := c.settle(); cut > 0 {
					t.Errorf("%+v: %d connections are cut", step, cut)
				}
			}
		})
	}
}

// A fault is one of two processes' at some instant of a handover.
type fault struct {
	name   string
	old    bool           // it happens to the old process
	signal syscall.Signal // 0: the new one Does something in a Place
	place  string
	does   string
	kills  bool // it costs what that process owned
	stays  bool // some connections stay, and drain
}

var faults = []fault{
	{name: "old killed", old: true, signal: syscall.SIGKILL, kills: true},
	{name: "new killed", signal: syscall.SIGKILL, kills: true},
	{name: "old stopped", old: true, signal: syscall.SIGSTOP},
	{name: "new stopped", signal: syscall.SIGSTOP},
	{name: "old told to end", old: true, signal: syscall.SIGTERM},
	{name: "new told to end", signal: syscall.SIGTERM, kills: true}, // it drains what it has
	{name: "old without descriptors", old: true, signal: syscall.SIGUSR1},
	{name: "new without descriptors", signal: syscall.SIGUSR1, stays: true},
	{name: "old without disk", old: true, signal: syscall.SIGUSR2},
	{name: "new without disk", signal: syscall.SIGUSR2},
	{name: "new without disk from its start", place: "begin", does: "fill the disk"},
	{name: "new dies at its start", place: "begin", does: "die"},
	{name: "new dies after Open", place: "opened", does: "die"},
	{name: "new dies in Restore", place: "restore", does: "die"},
	{name: "new dies in Accept", place: "accept", does: "die", kills: true},
	{name: "new dies when it has all", place: "report", does: "die", kills: true},
	{name: "new stops after Open", place: "opened", does: "stop"},
	{name: "new stops in Restore", place: "restore", does: "stop"},
	{name: "new stops in Accept", place: "accept", does: "stop"},
	{name: "panics in Accept", place: "accept", does: "panic", stays: true},
}

// Faults in handovers, one after the other. Without a kill no client notices anything; a kill costs
// what the dead process owned, and nothing else. Afterwards one process accepts, and the next
// handover moves every connection.
func TestFaults(t *testing.T) {
	rounds, conns := len(faults)/2, 60
	if testing.Short() {
		rounds = 4
	} else if os.Getenv("LOOPWHEEL_SLOW") != "" {
		rounds, conns = 120, 2000
	}
	rounds, conns = number("LOOPWHEEL_FAULTS", rounds), number("LOOPWHEEL_CONNS", conns)
	for _, withState := range []bool{false, true} {
		t.Run(fmt.Sprintf("with a State %v", withState), func(t *testing.T) {
			seed := testkit.Seed(t, 1)
			s := &siege{t: t, all: t, rng: rand.New(rand.NewPCG(seed, 0)), conns: conns, cfg: serverConfig{
				Addr: "tcp://" + testkit.FreeAddr(t), TLS: "tcp://" + testkit.FreeAddr(t), Path: filepath.Join(t.TempDir(), "s"),
				Timeout: time.Second + 3*time.Duration(conns)*time.Millisecond, Patience: 100 * time.Millisecond, WithState: withState}}
			s.server = s.start(fault{})
			s.server.says("serves")
			s.crowd = newCrowd(t, time.Duration(conns)*200*time.Microsecond)
			s.crowd.join(s.cfg.Addr[6:], conns*7/10, nil)
			s.crowd.join(s.cfg.TLS[6:], conns-conns*7/10, &tls.Config{InsecureSkipVerify: true})
			var order []int
			for i := range rounds {
				if len(order) == 0 {
					if order = s.rng.Perm(len(faults)); withState {
						slices.Reverse(order) // the other half, in a short run
					}
				}
				f := faults[order[0]]
				for _, g := range faults {
					if g.name == os.Getenv("LOOPWHEEL_FAULT") {
						f = g
					}
				}
				order = order[1:]
				t.Run(fmt.Sprintf("%d %s", i, f.name), func(t *testing.T) {
					s.t, s.crowd.t = t, t
					s.strike(f)
				})
				if s.t, s.crowd.t = t, t; t.Failed() {
					break
				}
			}
		})
	}
}

// A siege is a chain of handovers.
type siege struct {
	t      *testing.T // of the round
	all    *testing.T
	rng    *rand.Rand
	conns  int
	cfg    serverConfig
	crowd  *crowd
	server *process
}

// start starts a process that has a fault in it, or none.
func (s *siege) start(f fault) *process {
	cfg := s.cfg
	cfg.Engine = []string{"gnet", "epoll"}[s.rng.IntN(2)]
	cfg.Place, cfg.Does, cfg.Number = f.place, f.does, int32(1+s.rng.IntN([]int{8, s.conns}[s.rng.IntN(2)])) // the first ones are the rehearsal's
	if s.rng.IntN(2) == 0 {
		cfg.SlowAccept = time.Duration(s.rng.IntN(100)) * time.Microsecond
	}
	s.t.Logf("starts %s, Accept waits %v, number %d", cfg.Engine, cfg.SlowAccept, cfg.Number)
	return runWith(s.all, cfg)
}

// strike is one round.
func (s *siege) strike(f fault) {
	old := s.server
	before := old.asks("out")
	next := s.start(f)
	lasts := time.Duration(s.rng.IntN(5000)) * time.Millisecond
	if s.rng.IntN(2) == 0 {
		lasts /= 20
	}
	after := time.Duration(s.rng.IntN(s.conns*150)) * time.Microsecond
	s.t.Logf("old is %d, new is %d; the fault comes %v after Open, and lasts %v", old.pid, next.pid, after, lasts)
	if f.signal != 0 {
		victim := next
		if f.old {
			victim = old
		}
		if _, ok := next.says("opened"); !ok {
			s.t.Fatalf("the new process ends with %v: %q", next.cmd.ProcessState, next.said)
		}
		time.Sleep(after)
		_ = victim.cmd.Process.Signal(f.signal)
		if f.signal == syscall.SIGSTOP {
			time.Sleep(lasts)
			_ = victim.cmd.Process.Signal(syscall.SIGCONT)
		}
	}
	goOn := time.NewTicker(lasts + 10*time.Millisecond) // for one that stops itself, whenever that is
	defer goOn.Stop()
	for late := time.After(time.Minute); !old.hasEnded() && !next.hasEnded(); {
		select {
		case <-old.ended:
		case <-next.ended:
		case <-goOn.C:
			if f.does == "stop" {
				_ = next.cmd.Process.Signal(syscall.SIGCONT)
			}
		case <-late:
			s.t.Fatalf("after a minute both processes go on: %q and %q", old.said, next.said)
		}
	}
	if f.place == "report" && f.does == "die" { // the old one may have ended before that
		<-next.ended
	}
	cut := s.crowd.settle()
	isFull := f.signal == syscall.SIGUSR1
	if s.server = next; !old.hasEnded() {
		<-next.ended
		testkit.Eventually(s.t, "the old process serves newcomers, or ends", func() bool { return isFull || old.hasEnded() || s.served(old) == nil })
		s.server = old
	}
	want := 0
	switch moved := s.moved(old, next, before); {
	case f.kills && !f.old:
		want = moved
	case f.kills && !old.retired(), f.stays && old.retired():
		want = s.conns - moved
	}
	if cut != want {
		s.t.Errorf("%d connections are cut, want %d", cut, want)
	}
	if s.server.hasEnded() {
		s.server = s.start(fault{})
		s.server.says("serves")
	}
	if !isFull {
		s.onlyOneAccepts()
		s.crowd.mend()
		cut = 0
	}
	third := s.start(fault{})
	if moved, ok := third.says("serves"); !ok || moved != s.conns-cut {
		s.t.Fatalf("in the next handover %d connections move, want %d; it says %q", moved, s.conns-cut, third.said)
	}
	s.server.ends()
	s.server = third
	if text, err := os.ReadFile(s.cfg.Path + ".pid"); string(text) != fmt.Sprintln(third.pid) {
		s.t.Errorf("the PID file has %q, %v; want %d", text, err, third.pid)
	}
	s.onlyOneAccepts()
	s.crowd.mend()
}

// moved returns how many connections have moved in this attempt.
func (s *siege) moved(old, next *process, before int) (n int) {
	ok := false
	switch {
	case !old.hasEnded():
		n, ok = old.asks("out"), true
	case old.retired():
		n, ok = old.says("out")
	case next.hasEnded():
		s.t.Fatalf("both processes have failed: %q, %q", old.said, next.said)
	default:
		return next.asks("in")
	}
	if !ok {
		s.t.Fatalf("the old process does not say how many have moved: %q", old.said)
	}
	return n - before
}

// onlyOneAccepts fails unless newcomers are served by the process in charge.
func (s *siege) onlyOneAccepts() {
	s.t.Helper()
	for range 8 {
		if err := s.served(s.server); err != nil {
			s.t.Error(err)
		}
	}
}

// served returns an error unless a newcomer is served by p.
func (s *siege) served(p *process) error {
	nc, err := net.Dial("tcp", s.cfg.Addr[6:])
	if err != nil {
		return err
	}
	defer nc.Close()
	_ = nc.SetDeadline(time.Now().Add(10 * time.Second))
	_, _ = io.WriteString(nc, "x\n")
	answer, err := bufio.NewReader(nc).ReadString('\n')
	if want := fmt.Sprintf("%d 1 x\n", p.pid); err != nil || answer != want {
		return fmt.Errorf("a newcomer gets %q, %v; want %q", answer, err, want)
	}
	return nil
}

// A process that takes over tells the service manager, and waits until that has heard it, before
// the old one ends.
func TestNotify(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notify")
	manager, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Net: "unixgram", Name: path})
	if err != nil {
		t.Fatal(err)
	}
	defer manager.Close()
	t.Setenv("NOTIFY_SOCKET", path)
	hears := func(want string) (fd int) {
		t.Helper()
		b, oob := make([]byte, 100), make([]byte, 100)
		_ = manager.SetReadDeadline(time.Now().Add(20 * time.Second))
		n, oobn, _, _, err := manager.ReadMsgUnix(b, oob)
		if err != nil || string(b[:n]) != want {
			t.Fatalf("the manager hears %q, %v; want %q", b[:n], err, want)
		}
		if messages, _ := syscall.ParseSocketControlMessage(oob[:oobn]); len(messages) > 0 {
			fds, _ := syscall.ParseUnixRights(&messages[0])
			fd = fds[0]
		}
		return fd
	}
	cfg := serverConfig{Addr: "tcp://" + testkit.FreeAddr(t), Path: filepath.Join(t.TempDir(), "s")}
	var old *process
	for range 3 {
		p := runWith(t, cfg)
		hears(fmt.Sprintf("MAINPID=%d\nREADY=1", p.pid))
		barrier := hears("BARRIER=1")
		if barrier == 0 {
			t.Fatal("there is no descriptor with BARRIER=1")
		}
		if text, err := os.ReadFile(cfg.Path + ".pid"); string(text) != fmt.Sprintln(p.pid) {
			t.Errorf("the PID file has %q, %v; want %d", text, err, p.pid)
		}
		if old != nil && old.hasEnded() {
			t.Error("the old process has ended before the manager knew of the next one")
		}
		_ = syscall.Close(barrier)
		if n, _ := p.says("predecessor"); old != nil && n != old.pid {
			t.Errorf("the predecessor is %d, want %d", n, old.pid)
		}
		if _, ok := p.says("serves"); !ok {
			t.Fatalf("it ends: %q", p.said)
		}
		if old != nil {
			old.ends()
		}
		old = p
	}
}
