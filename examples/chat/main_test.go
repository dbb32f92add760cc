package main

import (
	"context"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/loop"
)

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

// slowly skips what needs the machine for long.
func slowly(t *testing.T, variable, why string) {
	t.Helper()
	if os.Getenv(variable) == "" {
		t.Skipf("%s; to run it set %s=1, as CI does", why, variable)
	}
}

func contains(t *testing.T, got, want string) {
	t.Helper()
	if !strings.Contains(got, want) {
		t.Errorf("got %q, want something with %q", got, want)
	}
}
