//go:build unix

package exampletest

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/internal/testkit"
)

// examples/gateway is replaced again and again while clients come at a steady rate, and none of
// them is refused, reset or left without its answer. With LOOPWHEEL_SLOW=1 it is replaced 20 times,
// under 500 connections a second.
func TestRestart(t *testing.T) {
	times, rate := 3, 200
	if os.Getenv("LOOPWHEEL_SLOW") != "" {
		times, rate = 20, 500
	}
	for _, kind := range []string{"tcp", "unix", "TLS"} {
		t.Run(kind, func(t *testing.T) {
			p := startRestarting(t, kind)
			stop := make(chan struct{})
			var crowd crowd
			var clients sync.WaitGroup
			clients.Go(func() { crowd.come(p.dial, rate, stop) })
			for range times {
				before, _ := crowd.seen()
				testkit.Eventually(t, "clients come", func() bool { now, _ := crowd.seen(); return now >= before+rate/4 })
				p.restart(t)
			}
			close(stop)
			clients.Wait()
			n, failed := crowd.seen()
			if t.Logf("%d restarts, %d connections", times, n); len(failed) > 0 {
				t.Errorf("%d of %d connections failed, want 0; the first: %v", len(failed), n, failed[0])
			}
			if kind == "unix" {
				p.end(t)
				if _, err := os.Stat(p.addr); !errors.Is(err, os.ErrNotExist) {
					t.Errorf("the socket's file after the end: %v, want %v", err, os.ErrNotExist)
				}
			}
		})
	}
}

// A restarting is the program, whichever process it is.
type restarting struct {
	kind, network, addr string
	pidFile             string
	log                 string
}

func startRestarting(t *testing.T, kind string) *restarting {
	t.Helper()
	dir := t.TempDir()
	p := &restarting{kind: kind, network: "tcp", pidFile: filepath.Join(dir, "pid"), log: filepath.Join(dir, "log")}
	// On a busy machine a slow client gets a minute. If all have gone, nobody waits.
	flags := []string{"-open", "-addr", "tcp://127.0.0.1:0", "-http", "localhost:0", "-pid", p.pidFile, "-drain", "1m", "-handover", filepath.Join(dir, "s")}
	switch kind {
	case "unix":
		p.network, p.addr = "unix", testkit.SocketPath(t)
		flags[2] = "unix://" + p.addr
	case "TLS":
		cert, key := testkit.CertificateFiles(t, testkit.Certificate("localhost"))
		flags = append(flags, "-tls-cert", cert, "-tls-key", key)
	}
	log, err := os.Create(p.log)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd := exec.Command(built("gateway"), flags...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { _ = cmd.Wait() }()
	t.Cleanup(func() {
		p.end(t)
		if t.Failed() {
			t.Logf("it said %s", p.said())
		}
	})
	testkit.Eventually(t, "a process is in charge", func() bool { return p.pid() != 0 && strings.Contains(p.said(), "listening on") })
	if kind != "unix" {
		_, rest, _ := strings.Cut(p.said(), "listening on tcp://")
		p.addr, _, _ = strings.Cut(rest, "\n")
	}
	return p
}

// said returns what all its processes have written.
func (p *restarting) said() string {
	text, _ := os.ReadFile(p.log)
	return string(text)
}

// pid returns the process in charge, or 0.
func (p *restarting) pid() int {
	text, _ := os.ReadFile(p.pidFile)
	n, _ := strconv.Atoi(strings.TrimSpace(string(text)))
	return n
}

// restart replaces the program and waits until the old process has ended.
func (p *restarting) restart(t *testing.T) {
	t.Helper()
	old := p.pid()
	_ = syscall.Kill(old, syscall.SIGHUP)
	testkit.EventuallyIn(t, 2*time.Minute, "a new process is in charge", func() bool { return p.pid() != old })
	awaitExit(t, old)
}

func awaitExit(t *testing.T, pid int) {
	t.Helper()
	testkit.EventuallyIn(t, 2*time.Minute, fmt.Sprint("process ", pid, " has ended"), func() bool { return !running(pid) })
}

// running reports whether a process exists and is no zombie.
func running(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return syscall.Kill(pid, 0) == nil && !errors.Is(err, os.ErrNotExist)
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(rest, "Z")
}

func (p *restarting) end(t *testing.T) {
	if pid := p.pid(); pid != 0 && running(pid) {
		_ = syscall.Kill(pid, syscall.SIGTERM)
		awaitExit(t, pid)
	}
}

func (p *restarting) dial() (net.Conn, error) {
	d := &net.Dialer{Timeout: time.Minute}
	if p.kind == "TLS" {
		return tls.DialWithDialer(d, p.network, p.addr, &tls.Config{InsecureSkipVerify: true})
	}
	return d.Dial(p.network, p.addr)
}

// A crowd is clients that each log in once.
type crowd struct {
	mu     sync.Mutex
	n      int
	failed []error
}

func (c *crowd) seen() (n int, failed []error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n, c.failed
}

// mostAtOnce is how many clients there may be at a time: on a slow machine fewer come.
const mostAtOnce = 200

// come connects clients at a rate per second until stop is closed, and waits for the last.
func (c *crowd) come(dial func() (net.Conn, error), rate int, stop <-chan struct{}) {
	tick := time.NewTicker(time.Second / time.Duration(rate))
	defer tick.Stop()
	places := make(chan struct{}, mostAtOnce)
	var wg sync.WaitGroup
	defer wg.Wait()
	for i := 0; ; i++ {
		select {
		case <-stop:
			return
		case <-tick.C:
		}
		places <- struct{}{}
		wg.Go(func() {
			err := logIn(dial, fmt.Sprint("client ", i))
			<-places
			c.mu.Lock()
			defer c.mu.Unlock()
			if c.n++; err != nil {
				c.failed = append(c.failed, err)
			}
		})
	}
}

func logIn(dial func() (net.Conn, error), name string) error {
	conn, err := dial()
	if err != nil {
		return err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(testkit.Patience))
	if _, err := conn.Write(login(name)); err != nil {
		return err
	}
	got := make([]byte, len(loggedIn))
	if _, err = io.ReadFull(conn, got); err == nil && !bytes.Equal(got, loggedIn) {
		err = fmt.Errorf("got %q, want %q", got, loggedIn)
	}
	return err
}
