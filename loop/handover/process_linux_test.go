package handover_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
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

// serverEnv has the test's binary be a server: its address, and the path of its handover.
const serverEnv = "LOOPWHEEL_HANDOVER_SERVER"

func TestMain(m *testing.M) {
	if args := os.Getenv(serverEnv); args != "" {
		if err := serve(strings.Fields(args)); err != nil {
			fmt.Println("error", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// serve is a process that takes over, and hands over. It says what it does on its output. args are
// an address, the path of the handover, and its Timeout.
func serve(args []string) error {
	addr, path := args[0], args[1]
	timeout, err := time.ParseDuration(args[2])
	if err != nil {
		return err
	}
	srv := &loop.Server{Addr: addr, Codec: codec.Lines{}, NumLoops: 2, Accept: accept("n"), Timeouts: loop.Timeouts{Close: time.Second},
		Logger: zerolog.New(os.Stderr).Level(zerolog.ErrorLevel)}
	var once sync.Once
	cfg := handover.Config{Path: path, Timeout: timeout, Patience: time.Millisecond, Check: func([]byte) error {
		once.Do(func() { fmt.Println("moving") })
		return nil
	}}
	report, err := handover.Take(context.Background(), srv, cfg)
	if err != nil && !errors.Is(err, handover.ErrTakenBack) {
		return err
	}
	if _, err := handover.Listen(srv, cfg); err != nil {
		return err
	}
	fmt.Println("serves", report.Conns)
	fmt.Println("pause", report.LongestPause.Microseconds())
	go func() { // the test asks for the goroutines, and its end is this process' end
		for in := bufio.NewScanner(os.Stdin); in.Scan(); {
			fmt.Println("goroutines", runtime.NumGoroutine())
		}
		os.Exit(3)
	}()
	return srv.Wait()
}

// A process is a server of its own.
type process struct {
	t     *testing.T
	cmd   *exec.Cmd
	in    io.WriteCloser
	lines chan string // closed when it has ended
}

func run(t *testing.T, addr, path string) *process {
	t.Helper()
	return runWith(t, addr, path, 20*time.Second)
}

func runWith(t *testing.T, addr, path string, timeout time.Duration) *process {
	t.Helper()
	p := &process{t: t, cmd: exec.Command(os.Args[0]), lines: make(chan string, 10)}
	p.cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s %s %v", serverEnv, addr, path, timeout))
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

// freeAddr returns an address that nobody listens at.
func freeAddr(t *testing.T) string {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return ln.Addr().String()
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

func (c *crowd) join(addr string, n int) {
	c.t.Helper()
	for range n {
		nc, err := net.Dial("tcp", addr)
		if err != nil {
			c.t.Fatal(err)
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

// Handovers in a row, under load, lose nothing, double nothing, and leave nothing behind.
func TestHandoversUnderLoad(t *testing.T) {
	conns, times := 200, 3
	if os.Getenv("LOOPWHEEL_SLOW") != "" {
		conns, times = 10_000, 20
	} else if testing.Short() {
		times = 2
	}
	path, addr := filepath.Join(t.TempDir(), "s"), freeAddr(t)
	server := run(t, "tcp://"+addr, path)
	server.says("serves")
	c := &crowd{t: t, think: time.Duration(conns) * 200 * time.Microsecond}
	c.join(addr, conns)
	files, goroutines, longest := server.files(), server.goroutines(), time.Duration(0)
	for range times {
		next := run(t, "tcp://"+addr, path)
		if n, ok := next.says("serves"); n != conns || !ok {
			t.Fatalf("%d connections have moved, of %d", n, conns)
		}
		pause, _ := next.says("pause")
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

// Either process is killed at some instant of a handover: while the next one starts, or while
// connections move. The other one serves what it holds, and newcomers, and nothing hangs.
func TestKilled(t *testing.T) {
	rounds, conns := 6, 200
	if os.Getenv("LOOPWHEEL_SLOW") != "" {
		rounds, conns = 50, 500
	} else if testing.Short() {
		rounds = 3 // if the machine is so slow that all have moved by then, none survives the second, and all the third
	}
	survived := 0
	for round := range rounds {
		path, addr := filepath.Join(t.TempDir(), "s"), freeAddr(t)
		old := run(t, "tcp://"+addr, path)
		old.says("serves")
		files := old.files()
		c := &crowd{t: t, think: 10 * time.Millisecond}
		c.join(addr, conns)
		next := run(t, "tcp://"+addr, path)
		if round%4 > 0 {
			next.says("moving")
		}
		time.Sleep(rand.N(20 * time.Millisecond)) // to any point of it
		victim, other := old, next
		if round%2 == 1 {
			victim, other = next, old
		}
		_ = victim.cmd.Process.Signal(syscall.SIGKILL)
		testkit.Eventually(t, "a newcomer is served, or the old process has handed over to one that is dead", func() bool {
			return served(addr) || other == old && ended(other)
		})
		time.Sleep(20 * time.Millisecond) // those that are there go on for some answers
		broken := c.leave()
		survived += conns - broken
		t.Logf("round %d: %d of %d connections ended with a process", round, broken, conns)
		testkit.Eventually(t, "the process that lives has no more descriptors than before", func() bool {
			return ended(other) || other.files() <= files
		})
		old.kill()
		next.kill()
	}
	if survived == 0 {
		t.Error("no connection has survived in any round")
	}
}

// Either process is stopped in the middle, as by a debugger or a frozen container: for less than
// the other waits, or for longer, so that the handover fails and both serve what they have. No
// client notices.
func TestStopped(t *testing.T) {
	const timeout = 500 * time.Millisecond
	rounds := 4
	if testing.Short() {
		rounds = 2
	}
	for round := range rounds {
		stop := []time.Duration{timeout / 5, 4 * timeout}[round/2]
		path, addr := filepath.Join(t.TempDir(), "s"), freeAddr(t)
		old := runWith(t, "tcp://"+addr, path, timeout)
		old.says("serves")
		c := &crowd{t: t, think: 10 * time.Millisecond}
		c.join(addr, 300)
		next := runWith(t, "tcp://"+addr, path, timeout)
		next.says("moving")
		stopped := []*process{old, next}[round%2].cmd.Process
		_ = stopped.Signal(syscall.SIGSTOP)
		time.Sleep(stop) // it is stopped for that long
		_ = stopped.Signal(syscall.SIGCONT)
		moved, ok := next.says("serves")
		if !ok {
			t.Fatalf("round %d: the next process has ended", round)
		}
		if !served(addr) {
			t.Errorf("round %d: a newcomer is not served", round)
		}
		if broken := c.leave(); broken > 0 {
			t.Errorf("round %d: %d connections were broken", round, broken)
		}
		t.Logf("round %d: %d of 300 connections have moved", round, moved)
		old.kill()
		next.kill()
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
