package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/gobwas/ws"
	"github.com/gobwas/ws/wsutil"
	"github.com/redis/go-redis/v9"

	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop"
)

func TestMain(m *testing.M) { testkit.MainOrTests(m, main) }

// A process is the program, running.
type process struct {
	t                *testing.T
	cmd              *exec.Cmd
	page, host, port string
}

// startProcess runs the program with flags until it is killed, or the test ends.
func startProcess(t *testing.T, flags ...string) *process {
	t.Helper()
	p := &process{t: t, cmd: testkit.Program(context.Background(), append([]string{"-addr", "tcp://127.0.0.1:0", "-lines", "tcp://127.0.0.1:0"}, flags...)...)}
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.kill)
	out := bufio.NewReader(stdout)
	line, err := out.ReadString('\n')
	if strings.HasPrefix(line, "redis:") {
		line, err = out.ReadString('\n')
	}
	if err == nil {
		p.page = strings.TrimSpace(strings.TrimPrefix(line, "page:"))
		_, err = fmt.Fscanf(out, "lines: nc %s %s\n", &p.host, &p.port)
	}
	if err != nil {
		t.Fatalf("%q: %v", line, err)
	}
	return p
}

func (p *process) signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
}

// The program prints where it is, serves both ports with nothing installed, and SIGTERM ends it with
// a goodbye.
func TestProgram(t *testing.T) {
	p := startProcess(t)
	r, err := http.Get(p.page)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	if r.StatusCode != http.StatusOK || !strings.HasPrefix(r.Header.Get("Content-Type"), "text/html") {
		t.Errorf("%s: %s, %s", p.page, r.Status, r.Header.Get("Content-Type"))
	}
	c, err := net.Dial("tcp", net.JoinHostPort(p.host, p.port))
	if err != nil {
		t.Fatal(err)
	}
	nc := &liner{t, c, bufio.NewScanner(c)}
	nc.hears(" has joined lobby")
	p.signal(syscall.SIGTERM)
	nc.hears("* the server restarts: goodbye")
	if err := p.cmd.Wait(); err != nil {
		t.Errorf("the program ended with: %v", err)
	}
}

// What cannot work is said before anything is served.
func TestBadOptions(t *testing.T) {
	for _, tt := range []struct{ args, want string }{
		{"-idle 0s", "-idle"},
		{"-rate NaN", "-rate"},
		{"-rooms 0", "-rooms"},
		{"-history -1", "-history"},
		{"-keep 1m -idle 2m", "-keep"}, {"-redis ,", "-redis"},
		{"-tls-cert x", "-tls-key"},
		{"-tls-cert /none -tls-key /none", "-tls-cert and -tls-key: open /none: no such file"},
		{"-addr udp://127.0.0.1:0", "-addr udp"},
		{"-lines nowhere", "-lines nowhere"},
		{"-loops -1", "-loops -1"},
		{"-also 127.0.0.1:8081", "-also 127.0.0.1:8081"},
		{"-origins http://", "-origins"},
		{"-metrics nowhere", "-metrics"},
		{"-redis 127.0.0.1:1", "-redis 127.0.0.1:1"},
	} {
		t.Run(tt.args, func(t *testing.T) {
			opt := parse(t, append([]string{"-addr", "tcp://127.0.0.1:0", "-lines", "tcp://127.0.0.1:0"}, strings.Fields(tt.args)...)...)
			if err := run(t.Context(), opt, io.Discard); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want an error with %s", err, tt.want)
			}
		})
	}
}

func TestArguments(t *testing.T) {
	testkit.FlagErrors(t, [][]string{{`arguments besides the flags: ["x"]`, "x"}, {"-idle", "-idle=soon"}, {"-addr", "-addr="}, {"-lines", "-lines="}})
}

// parse returns the options that a command line says.
func parse(t testing.TB, args ...string) (opt options) {
	t.Helper()
	fs := flag.NewFlagSet("chat", flag.ContinueOnError)
	opt.register(fs)
	if err := fs.Parse(args); err != nil {
		t.Fatal(err)
	}
	return opt
}

// testOptions serve on free ports, with enough patience for a slow machine.
func testOptions() options {
	return options{
		web: "tcp://127.0.0.1:0", lines: "tcp://127.0.0.1:0", loops: 2, idle: time.Hour, ping: time.Minute, rate: 50, history: 50,
		rooms: 100, keep: 24 * time.Hour, lease: time.Minute, // nobody is taken for dead because the machine stood still
	}
}

// A running chat is in this process.
type running struct {
	*chat
	srv  *loop.Server
	stop func() // also called when the test ends
}

// serve runs a chat on a Redis.
func serve(t testing.TB, redisAddr string, opt options) *running {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	client := redis.NewClient(&redis.Options{Addr: redisAddr, ContextTimeoutEnabled: true})
	ch, err := openChat(ctx, client, opt)
	if err != nil {
		t.Fatal(err)
	}
	srv, err := ch.newServer()
	if err != nil {
		t.Fatal(err)
	}
	if err := srv.Start(ctx); err != nil {
		t.Fatal(err)
	}
	r := &running{chat: ch, srv: srv, stop: sync.OnceFunc(func() {
		cancel()
		if err := errors.Join(srv.Wait(), ch.close()); err != nil {
			t.Errorf("the server ended with: %v", err)
		}
		_ = client.Close()
	})}
	t.Cleanup(r.stop)
	return r
}

// A liner is somebody with nc.
type liner struct {
	t testing.TB
	net.Conn
	in *bufio.Scanner
}

func (r *running) dialLines(t testing.TB) *liner {
	t.Helper()
	c, err := net.Dial("tcp", r.srv.Addrs()[1].String())
	if err != nil {
		t.Fatal(err)
	}
	if r.srv.TLS != nil {
		c = tls.Client(c, &tls.Config{InsecureSkipVerify: true})
	}
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	return &liner{t, c, bufio.NewScanner(c)}
}

func (l *liner) say(format string, args ...any) {
	l.t.Helper()
	if _, err := fmt.Fprintf(l.Conn, format+"\n", args...); err != nil {
		l.t.Fatal(err)
	}
}

// hears reads lines until one ends with what is wanted.
func (l *liner) hears(want string) (line string) {
	l.t.Helper()
	var got []string
	for l.in.Scan() {
		if strings.HasSuffix(l.in.Text(), want) {
			return l.in.Text()
		}
		got = append(got, l.in.Text())
	}
	l.t.Fatalf("got %q, want %q, %v", got, want, l.in.Err())
	return ""
}

// secureOptions are testOptions with a certificate of the test's own.
func secureOptions(t testing.TB) options {
	t.Helper()
	opt := testOptions()
	opt.cert, opt.key = testkit.CertificateFiles(t, testkit.Certificate("127.0.0.1"))
	return opt
}

// The page, its WebSocket and lines, over TLS.
func TestTLS(t *testing.T) {
	r := serve(t, miniredis.RunT(t).Addr(), secureOptions(t))
	trusting := &tls.Config{InsecureSkipVerify: true}
	client := http.Client{Transport: &http.Transport{TLSClientConfig: trusting}, Timeout: time.Minute}
	defer client.CloseIdleConnections()
	resp, err := client.Get("https://" + r.srv.Addrs()[0].String() + "/")
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	page, _ := files.ReadFile("page/index.html")
	if err != nil || string(body) != string(page) {
		t.Errorf("got %d bytes, %v, want the page", len(body), err)
	}
	nc := r.dialLines(t)
	nc.hears("has joined lobby") // that is nc
	dialer := ws.Dialer{TLSConfig: trusting, Timeout: time.Minute}
	c, _, _, err := dialer.Dial(t.Context(), "wss://"+r.srv.Addrs()[0].String()+"/ws?nick=ann&room=lobby")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	nc.hears("ann has joined lobby")
	if err := wsutil.WriteClientText(c, []byte("hello")); err != nil {
		t.Fatal(err)
	}
	nc.hears("<ann> hello")
}

// The README lists each flag with its default.
func TestFlagsAreListed(t *testing.T) {
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	var opt options
	fs := flag.NewFlagSet("chat", flag.ContinueOnError)
	opt.register(fs)
	fs.VisitAll(func(f *flag.Flag) {
		def := f.DefValue
		if def == "" {
			def = `""`
		}
		if line := fmt.Sprintf("    %-10s %-22s ", "-"+f.Name, def); !strings.Contains(string(text), "\n"+line) {
			t.Errorf("README.md does not have %q", line)
		}
	})
}
