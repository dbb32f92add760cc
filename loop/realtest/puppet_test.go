package realtest_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop"
)

// The tests in files fault_*_test.go prove with faults on real sockets what docs/reliability.md
// says. Servers or clients are processes of their own where their memory, descriptors or end are
// what is tested.

// needLinux skips a test that looks into /proc.
func needLinux(t *testing.T) {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("it reads /proc; run it on Linux, as CI does")
	}
}

// A puppet is a child that answers each line with a line, until its input ends.
type puppet struct {
	t   *testing.T
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
	end func() error // closes its input and waits
}

func startPuppet(t *testing.T, name string, env ...string) *puppet {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), append(env, childEnv+"="+name)...)
	return startPuppetCommand(t, cmd)
}

func startPuppetCommand(t *testing.T, cmd *exec.Cmd) *puppet {
	t.Helper()
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p := &puppet{t: t, cmd: cmd, in: in, out: bufio.NewReader(out)}
	p.end = sync.OnceValue(func() error {
		in.Close()
		tooLong := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() })
		defer tooLong.Stop()
		return cmd.Wait()
	})
	t.Cleanup(func() { _ = p.end() })
	return p
}

// ask sends a line and returns the answer.
func (p *puppet) ask(format string, args ...any) string {
	p.t.Helper()
	fmt.Fprintf(p.in, format+"\n", args...)
	return p.hear()
}

func (p *puppet) hear() string {
	p.t.Helper()
	line, err := p.out.ReadString('\n')
	if err != nil {
		p.t.Fatalf("a child said %q and then: %v", line, err)
	}
	return strings.TrimSuffix(line, "\n")
}

// number is ask for an answer that is a number.
func (p *puppet) number(format string, args ...any) int {
	p.t.Helper()
	s := p.ask(format, args...)
	n, err := strconv.Atoi(s)
	if err != nil {
		p.t.Fatalf("a child answered %q", s)
	}
	return n
}

// ends checks that the child ends by itself, with code 0.
func (p *puppet) ends() {
	p.t.Helper()
	if err := p.end(); err != nil {
		p.t.Errorf("a child ended with: %v", err)
	}
}

// memory returns what /proc says of the child's memory, in bytes: RssAnon now, VmHWM at its
// highest, files included.
func (p *puppet) memory(field string) int {
	p.t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		p.t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, field+":"); ok {
			n, _ := strconv.Atoi(strings.Fields(rest)[0])
			return n << 10
		}
	}
	p.t.Fatalf("no %s", field)
	return 0
}

// forgetPeak makes VmHWM begin again at what is resident now.
func (p *puppet) forgetPeak() {
	p.t.Helper()
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", p.cmd.Process.Pid), []byte("5"), 0); err != nil {
		p.t.Fatal(err)
	}
}

// obey is the life of a puppet: it answers each line of its input.
func obey(answer func(words []string) string) {
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		fmt.Println(answer(strings.Fields(lines.Text())))
	}
}

// fail ends a child that cannot go on.
func fail(err error) {
	fmt.Fprintln(os.Stderr, os.Getenv(childEnv)+":", err)
	os.Exit(1)
}

// servePuppet runs srv at $ADDR, or a free port: it prints its address, answers what follows,
// drains when its input ends, and fails if that is not clean.
func servePuppet(srv *loop.Server, answer func(words []string) string) {
	if srv.Addr = os.Getenv("ADDR"); srv.Addr == "" {
		srv.Addr = "tcp://127.0.0.1:0"
	}
	ctx, cancel := context.WithCancel(context.Background())
	secureIfAsked(srv)
	if err := srv.Start(ctx); err != nil {
		fail(err)
	}
	fmt.Println(srv.LocalAddr().Network(), srv.LocalAddr())
	obey(func(words []string) string {
		switch words[0] {
		case "stats":
			st := srv.Stats()
			return fmt.Sprintf("%d %d %d %d %d", st.Conns, st.Accepted, st.Refused, st.Closed, st.Panics)
		case "conns":
			return strconv.Itoa(srv.Stats().Conns)
		case "messages":
			return strconv.Itoa(int(srv.Stats().Messages))
		case "panics":
			return strconv.Itoa(int(srv.Stats().Panics))
		case "turn": // the longest of any loop, in microseconds
			var longest time.Duration
			for _, l := range srv.Stats().Loops {
				longest = max(longest, l.MaxTurn)
			}
			return strconv.Itoa(int(longest.Microseconds()))
		case "fds":
			return strconv.Itoa(descriptors())
		case "goroutines":
			return strconv.Itoa(runtime.NumGoroutine())
		case "gc":
			debug.FreeOSMemory()
			return "ok"
		case "heap":
			runtime.GC()
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			return strconv.Itoa(int(m.HeapAlloc))
		}
		return answer(words)
	})
	cancel()
	if err := srv.Wait(); err != nil {
		fail(err)
	}
}

// address takes apart what servePuppet prints.
func (p *puppet) address() (network, addr string) {
	p.t.Helper()
	network, addr, _ = strings.Cut(p.hear(), " ")
	return network, addr
}

// descriptors returns how many this process has open.
func descriptors() int {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		fail(err)
	}
	return len(entries) - 1 // the directory itself
}

// clientsChild is many clients that echo: it connects $CONNS of them to $ADDR, each of which sends
// 64 bytes every $PERIOD and waits for them. "reset" forgets what was measured; "report" says how
// many round trips there were, the median, the 99th percentile and the longest, in microseconds,
// without those for which the machine stood still, and how many failed.
func clientsChild() {
	network, addr, _ := strings.Cut(os.Getenv("ADDR"), " ")
	n, _ := strconv.Atoi(os.Getenv("CONNS"))
	period, _ := time.ParseDuration(os.Getenv("PERIOD"))
	machine := testkit.WatchStalls()
	var mu sync.Mutex
	var took []time.Duration
	failed := 0
	for i := range n {
		c, err := connect(network, addr)
		if err != nil {
			fail(err)
		}
		go func() {
			time.Sleep(period * time.Duration(i) / time.Duration(n)) // evenly over the period
			for {
				began := time.Now()
				d, err := roundTrip(c)
				if d >= machineStall {
					d -= machine.Within(began, began.Add(d))
				}
				mu.Lock()
				if err != nil {
					failed++
					mu.Unlock()
					return
				}
				took = append(took, d)
				mu.Unlock()
				time.Sleep(period - d) // the rate at which it asks
			}
		}()
	}
	fmt.Println("ready")
	obey(func(words []string) string {
		mu.Lock()
		defer mu.Unlock()
		if words[0] == "reset" {
			took, failed = nil, 0
			return "ok"
		}
		p50, p99, worst := percentiles(took)
		return fmt.Sprintf("%d %d %d %d %d", len(took), p50.Microseconds(), p99.Microseconds(), worst.Microseconds(), failed)
	})
}

func roundTrip(c net.Conn) (time.Duration, error) {
	msg := bytes.Repeat([]byte("x"), 63)
	msg = append(msg, '\n')
	began := time.Now()
	_ = c.SetDeadline(began.Add(2 * time.Minute))
	if _, err := c.Write(msg); err != nil {
		return 0, err
	}
	got := make([]byte, len(msg))
	if _, err := io.ReadFull(c, got); err != nil {
		return 0, err
	}
	if !bytes.Equal(got, msg) {
		return 0, errors.New("wrong echo")
	}
	return time.Since(began), nil
}

// percentiles returns median, 99th percentile and maximum.
func percentiles(d []time.Duration) (p50, p99, worst time.Duration) {
	if len(d) == 0 {
		return 0, 0, 0
	}
	d = slices.Sorted(slices.Values(d))
	return d[len(d)/2], d[len(d)*99/100], d[len(d)-1]
}

// echoers starts clientsChild with n clients.
func echoers(t *testing.T, network, addr string, n int, period time.Duration) *puppet {
	t.Helper()
	p := startPuppet(t, "clients", "ADDR="+network+" "+addr, fmt.Sprint("CONNS=", n), "PERIOD="+period.String())
	if s := p.hear(); s != "ready" {
		t.Fatalf("the clients say %q", s)
	}
	return p
}

// A latency is what echoers have measured.
type latency struct {
	trips, failed   int
	p50, p99, worst time.Duration
}

func (l latency) String() string {
	return fmt.Sprintf("%d round trips: median %v, p99 %v, worst %v", l.trips, l.p50, l.p99, l.worst)
}

// report returns the latency since the last reset, and fails the test if one round trip did not
// succeed.
func (p *puppet) report() (l latency) {
	p.t.Helper()
	var p50, p99, worst int64
	if _, err := fmt.Sscan(p.ask("report"), &l.trips, &p50, &p99, &worst, &l.failed); err != nil {
		p.t.Fatal(err)
	}
	l.p50, l.p99, l.worst = time.Duration(p50)*time.Microsecond, time.Duration(p99)*time.Microsecond, time.Duration(worst)*time.Microsecond
	if l.failed > 0 {
		p.t.Errorf("%d clients that had nothing to do with it failed", l.failed)
	}
	return l
}

// calm returns what the clients measure for a second from now on.
func (p *puppet) calm() latency {
	p.t.Helper()
	p.ask("reset")
	time.Sleep(time.Second) // in which they measure
	return p.report()
}

// inTime runs round up to ten times, until what it measures is at most limit: a machine that
// others use is late at times. What is wrong for another reason than lateness, round itself has to
// report, and is not forgiven.
func inTime(t *testing.T, limit time.Duration, round func() time.Duration) {
	t.Helper()
	const tries = 10
	var all []time.Duration
	for try := range tries {
		time.Sleep(time.Duration(try) * 300 * time.Millisecond) // others may have done with the machine
		d := round()
		if all = append(all, d); d <= limit || t.Failed() {
			return
		}
	}
	t.Errorf("%v in %d tries; want at most %v", all, tries, limit)
}
