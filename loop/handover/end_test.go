//go:build unix

package handover_test

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/handover"
)

// This file is about the end of a process beside a handover.

// blockedLog is a log that nobody reads before it is closed.
type blockedLog chan struct{}

func (w blockedLog) Write(p []byte) (int, error) { <-w; return len(p), nil }

// serves opens a server that serves until the end of the test.
func serves(t *testing.T, srv *loop.Server, cfg handover.Config, more ...func(*handover.Handover)) *handover.Handover {
	t.Helper()
	h, err := handover.Open(t.Context(), srv, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.Close() })
	for _, f := range more {
		f(h)
	}
	if _, err := h.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	return h
}

// inCharge opens a server that serves until the context ends, which ends with the test.
func inCharge(t *testing.T, srv *loop.Server, cfg handover.Config, more ...func(*handover.Handover)) (end func(), ended chan error) {
	t.Helper()
	ctx, end := context.WithCancel(t.Context())
	h := serves(t, srv, cfg, more...)
	ended = make(chan error, 1)
	go func() { ended <- h.Run(ctx) }()
	return end, ended
}

// A process that is to end, and still accepts, greets nobody. One that starts meanwhile waits, and
// then serves all addresses by itself. The files of its sockets are there.
func TestStartWhileItEnds(t *testing.T) {
	for name, busy := range map[string]bool{"idle": false, "busy": true} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			cfg := handover.Config{Path: filepath.Join(dir, "s")}
			a, b := lines("a"), lines("b")
			a.Logger, b.Logger = zerolog.Nop(), zerolog.Nop()
			a.Drain = loop.Drain{Delay: time.Second, KeepAccepting: true}
			a.Accept = func(c *loop.Conn) loop.Handler {
				c.SetBusy(busy)
				return accept("a")(c)
			}
			for _, srv := range []*loop.Server{a, b} {
				srv.Addr = "tcp://" + testkit.FreeAddr(t)
				srv.Listeners = []loop.Listener{{Addr: "unix://" + filepath.Join(dir, "u")}}
			}
			b.Addr = a.Addr
			end, ended := inCharge(t, a, cfg)
			c := dial(t, a)
			c.say("one\n")
			c.hears("a 1 one")
			end()
			testkit.Eventually(t, "the server drains", a.Draining)
			inCharge(t, b, cfg, func(*handover.Handover) { time.Sleep(1200 * time.Millisecond) })
			n := dial(t, b)
			n.say("x\n")
			n.hears("b 1 x")
			if busy {
				c.say("two\n")
				c.hears("a 2 two")
				c.Close()
			}
			if err := testkit.Receive(t, "the end of the old server", ended); err != nil {
				t.Error(err)
			}
			for _, file := range []string{"s", "u"} {
				nc, err := net.Dial("unix", filepath.Join(dir, file))
				if err != nil {
					t.Errorf("after the end of the old process: %v", err)
					continue
				}
				nc.Close()
			}
		})
	}
}

// A process that is closed while it hands over leaves the files to the next one.
func TestCloseInAHandover(t *testing.T) {
	cfg := handover.Config{Path: filepath.Join(t.TempDir(), "s")}
	a := lines("a")
	a.Logger = zerolog.Nop()
	h := serves(t, a, cfg)
	b := next(t, cfg.Path)
	b.Got(b.Until(handover.Batch)) // now it is in charge
	_ = h.Close()
	nc, err := net.Dial("unix", cfg.Path)
	if err != nil {
		t.Fatal(err)
	}
	nc.Close()
}

// A log that blocks holds up neither a handover nor the end.
func TestHandoverWithABlockedLog(t *testing.T) {
	log := make(blockedLog)
	defer close(log)
	cfg := handover.Config{Path: filepath.Join(t.TempDir(), "s")}
	a, b := lines("a"), lines("b")
	a.Logger, b.Logger = zerolog.New(log), zerolog.New(log)
	_, ended := inCharge(t, a, cfg)
	c := dial(t, a)
	c.say("one\n")
	c.hears("a 1 one")
	end, endedB := inCharge(t, b, cfg)
	c.say("two\n")
	c.hears("b 2 two")
	if err := testkit.Receive(t, "the end of the old process", ended); err != nil {
		t.Error(err)
	}
	end()
	if err := testkit.Receive(t, "the end of the next process", endedB); err != nil {
		t.Error(err)
	}
}

// A service manager that reads nothing holds up no newcomers, and the log has it.
func TestDeafServiceManager(t *testing.T) {
	dir, log := t.TempDir(), make(lineWriter, 100)
	manager, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Net: "unixgram", Name: filepath.Join(dir, "notify")})
	if err != nil {
		t.Fatal(err)
	}
	defer manager.Close()
	t.Setenv("NOTIFY_SOCKET", manager.LocalAddr().String())
	a := lines("a")
	a.Addr, a.Logger = "tcp://"+testkit.FreeAddr(t), zerolog.New(log)
	h, err := handover.Open(t.Context(), a, handover.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	ready := make(chan error, 1)
	go func() {
		_, err := h.Ready(t.Context())
		ready <- err
	}()
	began := time.Now()
	testkit.Eventually(t, "it listens", func() bool {
		nc, err := net.Dial("tcp", a.Addr[6:])
		if err == nil {
			nc.Close()
		}
		return err == nil
	})
	c := dialAddr(t, net.TCPAddrFromAddrPort(netip.MustParseAddrPort(a.Addr[6:])))
	c.say("one\n")
	c.hears("a 1 one")
	if took := time.Since(began); took > 4*time.Second {
		t.Errorf("a newcomer is served after %v", took)
	}
	if line := testkit.Receive(t, "a line of the log", log); !strings.Contains(line, "cannot notify the service manager") {
		t.Errorf("the log has %s", line)
	}
	if err := testkit.Receive(t, "the end of Ready", ready); err != nil {
		t.Error(err)
	}
}

// An HTTP request in progress when the next process takes over has the time of the drain.
func TestRequestAfterHandover(t *testing.T) {
	cfg := handover.Config{Path: filepath.Join(t.TempDir(), "s"), Patience: 10 * time.Millisecond, Timeout: 500 * time.Millisecond}
	a, b := lines("a"), lines("b")
	a.Logger, b.Logger = zerolog.Nop(), zerolog.Nop()
	began := make(chan struct{})
	page := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		close(began)
		time.Sleep(2 * time.Second)
		_, _ = io.WriteString(w, "done")
	})}
	_, ended := inCharge(t, a, cfg, func(h *handover.Handover) {
		if err := h.ServeHTTP("page", "127.0.0.1:0", page); err != nil {
			t.Fatal(err)
		}
	})
	answer := make(chan string, 1)
	go func() {
		res, err := http.Get("http://" + page.Addr)
		if err != nil {
			answer <- err.Error()
			return
		}
		defer res.Body.Close()
		text, _ := io.ReadAll(res.Body)
		answer <- string(text)
	}()
	<-began
	inCharge(t, b, cfg)
	if got := testkit.Receive(t, "an answer", answer); got != "done" {
		t.Errorf("the answer is %q, want done", got)
	}
	if err := testkit.Receive(t, "the end of the old process", ended); err != nil {
		t.Error(err)
	}
}

// An HTTP server that cannot serve fails at once, and opens nothing.
func TestServeHTTPWithoutCertificate(t *testing.T) {
	h, err := handover.Open(t.Context(), lines("a"), handover.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	addr := testkit.FreeAddr(t)
	if err := h.ServeHTTP("page", addr, &http.Server{TLSConfig: &tls.Config{}}); err == nil {
		t.Error("ServeHTTP succeeds without a certificate")
	}
	if nc, err := net.Dial("tcp", addr); err == nil {
		nc.Close()
		t.Error("its address is open")
	}
}

// A process that is to end when everything has moved to it is ready, and drains.
func TestEndWhenAllHasMoved(t *testing.T) {
	dir := t.TempDir()
	cfg := handover.Config{Path: filepath.Join(dir, "s")}
	a, b := lines("a"), lines("b")
	a.Logger, b.Logger = zerolog.Nop(), zerolog.Nop()
	_, ended := inCharge(t, a, cfg)
	c := dial(t, a)
	c.say("one\n")
	c.hears("a 1 one")
	manager, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Net: "unixgram", Name: filepath.Join(dir, "notify")})
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("NOTIFY_SOCKET", manager.LocalAddr().String())
	h, err := handover.Open(t.Context(), b, cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	ctx, end := context.WithCancel(t.Context())
	go func() { // it hears of the new process while that holds back bye
		_, _ = manager.Read(make([]byte, 100))
		end()
		_ = manager.Close()
	}()
	if err := h.Run(ctx); err != nil {
		t.Errorf("Run returns %v, want nil", err)
	}
	if err := testkit.Receive(t, "the end of the old process", ended); err != nil {
		t.Error(err)
	}
}

// A process that has handed everything over ends at once, also with Drain.KeepAccepting: nothing is
// left that Drain.Delay would be for.
func TestKeepAcceptingAfterAHandover(t *testing.T) {
	for name, keep := range map[string]bool{"KeepAccepting": true, "without": false} {
		t.Run(name, func(t *testing.T) {
			cfg := handover.Config{Path: filepath.Join(t.TempDir(), "s")}
			a, b := lines("a"), lines("b")
			a.Drain = loop.Drain{Delay: 2 * testkit.Patience, KeepAccepting: keep}
			old, err := open(t, a, cfg)
			if err != nil {
				t.Fatal(err)
			}
			c := dial(t, a)
			c.say("one\n")
			c.hears("a 1 one")
			if _, err := open(t, b, cfg); err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			if err := testkit.Receive(t, "the end of the old process", old.ended); err != nil {
				t.Error(err)
			}
			if took := time.Since(began); took > 5*time.Second {
				t.Errorf("the old process ends after %v, want at once", took)
			}
			c.say("two\n")
			c.hears("b 2 two")
		})
	}
}

// A next process that hangs between Open and Ready frees the addresses when the old one gives up on
// it, and a third process can serve there.
func TestHangsAfterOpen(t *testing.T) {
	dir := t.TempDir()
	cfg := handover.Config{Path: filepath.Join(dir, "s"), Timeout: 300 * time.Millisecond}
	addr, web := testkit.FreeAddr(t), testkit.FreeAddr(t)
	server := func(who string) *loop.Server {
		srv := lines(who)
		srv.Addr, srv.Logger = "tcp://"+addr, zerolog.Nop()
		srv.Listeners = []loop.Listener{{Addr: "unix://" + filepath.Join(dir, "u")}, {Addr: "udp://127.0.0.1:0"}}
		return srv
	}
	serves := func(h *handover.Handover) {
		if err := h.ServeHTTP("page", web, &http.Server{}); err != nil {
			t.Error(err)
		}
	}
	a := server("a")
	end, ended := inCharge(t, a, cfg, serves)
	udp := a.Addrs()[2].String()
	hangs, err := handover.Open(t.Context(), server("b"), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer hangs.Close()
	serves(hangs)
	end()
	if err := testkit.Receive(t, "the end of the old process", ended); err != nil {
		t.Error(err)
	}
	testkit.EventuallyIn(t, 5*time.Second, "its addresses are free", func() bool {
		for _, a := range []string{addr, web} {
			ln, err := net.Listen("tcp", a)
			if err != nil {
				return false
			}
			ln.Close()
		}
		pc, err := net.ListenPacket("udp", udp)
		if err == nil {
			pc.Close()
		}
		return err == nil
	})
	c := server("c")
	inCharge(t, c, cfg, serves)
	peer := dial(t, c)
	peer.say("one\n")
	peer.hears("c 1 one")
	if _, err := hangs.Ready(t.Context()); err == nil || !strings.Contains(err.Error(), "gave up before this one was ready") {
		t.Errorf("Ready returns %v, want that the old process gave up", err)
	}
	_ = hangs.Close()
	for _, file := range []string{"s", "u"} {
		nc, err := net.Dial("unix", filepath.Join(dir, file))
		if err != nil {
			t.Errorf("after the end of the one that has hung: %v", err)
			continue
		}
		nc.Close()
	}
	peer.say("two\n")
	peer.hears("c 2 two")
}
