package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// program is the real program, built once.
var program string

func TestMain(m *testing.M) {
	os.Exit(build(m))
}

func build(m *testing.M) int {
	dir, err := os.MkdirTemp("", "echo")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	program = filepath.Join(dir, "echo")
	if out, err := exec.Command("go", "build", "-buildvcs=false", "-o", program, ".").CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "go build: %v\n%s", err, out)
		return 1
	}
	return m.Run()
}

// An echo is a running program. Its output comes line by line.
type echo struct {
	*exec.Cmd
	addr  string
	lines chan string // standard output
	log   *logBuffer  // standard error
}

// start runs the program on a free port, until the test ends at the latest.
func start(t *testing.T, flags ...string) *echo {
	t.Helper()
	e := &echo{
		Cmd:   exec.Command(program, append([]string{"-addr", "tcp://127.0.0.1:0"}, flags...)...),
		lines: make(chan string, 100),
		log:   newLogBuffer(),
	}
	out, err := e.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	e.Stderr = e.log
	if err := e.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Process.Kill() })
	go func() {
		defer close(e.lines)
		for sc := bufio.NewScanner(out); sc.Scan(); {
			e.lines <- sc.Text()
		}
	}()
	nc := regexp.MustCompile(`connect with: nc (\S+) (\d+)$`).FindStringSubmatch(e.expect(t, "connect with"))
	if nc == nil {
		t.Fatal("the program does not say how to connect")
	}
	e.addr = net.JoinHostPort(nc[1], nc[2])
	return e
}

// expect returns the next line on standard output that contains want.
func (e *echo) expect(t *testing.T, want string) string {
	t.Helper()
	for line := range e.lines {
		if strings.Contains(line, want) {
			return line
		}
	}
	t.Fatalf("the program ended without saying %q; it logged:\n%s", want, e.log)
	return ""
}

// dial connects to the program.
func (e *echo) dial(t *testing.T) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", e.addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	return c
}

// logBuffer collects what the program logs, and can wait for it.
type logBuffer struct {
	mu   sync.Mutex
	more *sync.Cond
	text bytes.Buffer
}

func newLogBuffer() *logBuffer {
	b := &logBuffer{}
	b.more = sync.NewCond(&b.mu)
	return b
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.more.Broadcast()
	return b.text.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// expect waits until want was logged.
func (b *logBuffer) expect(t *testing.T, want string) {
	t.Helper()
	b.expectMatch(t, regexp.MustCompile(regexp.QuoteMeta(want)))
}

func (b *logBuffer) expectMatch(t *testing.T, want *regexp.Regexp) {
	t.Helper()
	late := false
	timer := time.AfterFunc(30*time.Second, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		late = true
		b.more.Broadcast()
	})
	defer timer.Stop()
	b.mu.Lock()
	defer b.mu.Unlock()
	for !want.MatchString(b.text.String()) {
		if late {
			t.Fatalf("no %s in the log:\n%s", want, b.text.String())
		}
		b.more.Wait()
	}
}

// exchange sends and expects the same back.
func exchange(t *testing.T, c net.Conn, msg string) {
	t.Helper()
	if _, err := io.WriteString(c, msg); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len(msg))
	if _, err := io.ReadFull(c, got); err != nil || string(got) != msg {
		t.Fatalf("got %q, %v; want %q", got, err, msg)
	}
}

// stop sends sig and expects the program to end well.
func (e *echo) stop(t *testing.T, sig os.Signal) {
	t.Helper()
	if err := e.Process.Signal(sig); err != nil {
		t.Fatal(err)
	}
	e.expect(t, "drained, bye")
	if err := e.Wait(); err != nil {
		t.Fatalf("%v; it logged:\n%s", err, e.log)
	}
}

func TestEchoesAndDrains(t *testing.T) {
	t.Parallel()
	for _, sig := range []os.Signal{os.Interrupt, syscall.SIGTERM} {
		e := start(t)
		c := e.dial(t)
		exchange(t, c, "hello\n")
		e.dial(t).Close()
		e.log.expect(t, "closed by the peer")
		if err := e.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
		e.expect(t, "draining")
		if rest, err := io.ReadAll(c); len(rest) > 0 || err != nil {
			t.Fatalf("%q, %v; want the end of the stream", rest, err)
		}
		e.expect(t, "drained, bye")
		if err := e.Wait(); err != nil {
			t.Fatal(err)
		}
		e.log.expect(t, "closed, as the server stops")
	}
}

func TestCodecs(t *testing.T) {
	t.Parallel()
	for codec, msg := range map[string]string{
		"lines":  "a line\n",
		"length": "\x00\x00\x00\x05bytes",
		"raw":    "whatever",
	} {
		e := start(t, "-codec", codec, "-log", "off", "-loops", "1")
		exchange(t, e.dial(t), msg)
		e.stop(t, syscall.SIGTERM)
		if log := e.log.String(); log != "" {
			t.Errorf("-log off, but it logged:\n%s", log)
		}
	}
}

func TestEvictsWhoIsSilent(t *testing.T) {
	t.Parallel()
	e := start(t, "-idle", "3s")
	c := e.dial(t)
	began := time.Now()
	exchange(t, c, "hello\n")
	if _, err := io.ReadAll(c); err != nil {
		t.Fatal(err)
	}
	if d := time.Since(began); d < 3*time.Second {
		t.Errorf("evicted after %v", d)
	}
	e.log.expect(t, "evicted")
	e.log.expect(t, "messages=1")
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	e := start(t, "-metrics", "127.0.0.1:0")
	_, url, _ := strings.Cut(e.expect(t, "live page on"), "metrics on ")
	exchange(t, e.dial(t), "hello\n")
	var body []byte
	for deadline := time.Now().Add(30 * time.Second); !bytes.Contains(body, []byte("loopwheel_accepted_total 1\n")); {
		r, err := http.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		body, err = io.ReadAll(r.Body)
		r.Body.Close()
		if err != nil || time.Now().After(deadline) {
			t.Fatalf("%v\n%s", err, body)
		}
	}
	e.stop(t, syscall.SIGTERM)
	if out := fail(t, 1, "-addr", "tcp://127.0.0.1:0", "-metrics", "256.0.0.1:0"); !strings.Contains(out, "-metrics") {
		t.Errorf("it says %q", out)
	}
}

func TestStatusLine(t *testing.T) {
	t.Parallel()
	e := start(t)
	exchange(t, e.dial(t), "hello\n")
	e.log.expectMatch(t, regexp.MustCompile(`status conns=1 evicted=0 msg/s=0\.[12] timers=`)) // one in 5 s, or a bit more
}

// fail runs the program with flags that make it fail, and returns what it says.
func fail(t *testing.T, wantCode int, flags ...string) string {
	t.Helper()
	out, err := exec.Command(program, flags...).CombinedOutput()
	code := 0
	if exit, ok := err.(*exec.ExitError); ok {
		code = exit.ExitCode()
	}
	if code != wantCode || strings.Count(string(out), "\n") != 1 {
		t.Errorf("%q: exit code %d; want %d and one line:\n%s", flags, code, wantCode, out)
	}
	return string(out)
}

func TestPortInUse(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	out := fail(t, 1, "-addr", "tcp://"+ln.Addr().String())
	for _, want := range []string{ln.Addr().String(), "in use", "-addr"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in %q", want, out)
		}
	}
}

func TestBadFlags(t *testing.T) {
	t.Parallel()
	for _, flags := range [][]string{
		{"-addr", "127.0.0.1:7000"},
		{"-addr", "icmp://127.0.0.1:7000"},
		{"-addr", "tcp://127.0.0.1"},
		{"-codec", "json"},
		{"-idle", "soon"},
		{"-idle", "-1s"},
		{"-log", "loud"},
		{"-loops", "-1"},
		{"-nosuchflag"},
		{"7000"},
	} {
		out := fail(t, 2, flags...)
		if want := strings.TrimLeft(flags[len(flags)-1], "-"); !strings.Contains(out, want) {
			t.Errorf("%q: the value is not named in %q", flags, out)
		}
	}
}
