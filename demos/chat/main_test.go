package main

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/loop"
)

// programEnv makes the test binary be the program.
const programEnv = "LOOPWHEEL_TEST_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(programEnv) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// The program prints where it is, serves both ports, and SIGTERM ends it with a goodbye.
func TestProgram(t *testing.T) {
	cmd := exec.Command(os.Args[0], "-addr", "tcp://127.0.0.1:0", "-lines", "tcp://127.0.0.1:0", "-log", "error")
	cmd.Env = append(os.Environ(), programEnv+"=1")
	cmd.Stderr = os.Stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill() }() // if something below fails
	var page, host, port string
	if _, err := fmt.Fscanf(bufio.NewReader(stdout), "page: %s\nlines: nc %s %s\n", &page, &host, &port); err != nil {
		t.Fatal(err)
	}
	r, err := http.Get(page)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	if r.StatusCode != http.StatusOK || !strings.HasPrefix(r.Header.Get("Content-Type"), "text/html") {
		t.Errorf("%s: %s, %s", page, r.Status, r.Header.Get("Content-Type"))
	}
	c, err := net.Dial("tcp", net.JoinHostPort(host, port))
	if err != nil {
		t.Fatal(err)
	}
	nc := &liner{t, c, bufio.NewScanner(c)}
	nc.hears(" has joined lobby")
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	nc.hears("* the server restarts: goodbye")
	if err := cmd.Wait(); err != nil {
		t.Errorf("the program ended with: %v", err)
	}
}

// testOptions serve on free ports, with enough patience for a slow machine.
func testOptions() options {
	return options{
		web: "tcp://127.0.0.1:0", lines: "tcp://127.0.0.1:0", loops: 2,
		idle: time.Hour, ping: time.Minute, rate: 50, history: 50,
	}
}

// serve runs a chat until stop is called, or the test ends.
func serve(t testing.TB, opt options) (srv *loop.Server, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	srv = newServer(opt)
	if err := srv.Start(ctx); err != nil {
		cancel()
		t.Fatal(err)
	}
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := srv.Wait(); err != nil {
			t.Errorf("the server ended with: %v", err)
		}
	}
	t.Cleanup(stop)
	return srv, stop
}

// port returns the address in the form in which a server can be told to take it again.
func port(a net.Addr) string { return "tcp://" + a.String() }

func contains(t *testing.T, got, want string) {
	t.Helper()
	if !strings.Contains(got, want) {
		t.Errorf("got %q, want something with %q", got, want)
	}
}
