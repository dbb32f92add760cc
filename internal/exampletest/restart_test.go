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
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/internal/selfsigned"
	"github.com/loopwheel/loopwheel/internal/shortdir"
)

// examples/gateway is replaced again and again while clients come at a steady rate, and each of
// them counts what it sees. With LOOPWHEEL_SLOW=1 it is replaced 20 times, under 500 connections
// a second.
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
			for i := range times {
				for before := crowd.all.Load(); crowd.all.Load() < before+int64(rate)/4; {
					time.Sleep(time.Millisecond)
				}
				p.restart(t, i)
			}
			close(stop)
			clients.Wait()
			t.Logf("%d restarts, %d connections: %d refused, %d reset, %d replies lost",
				times, crowd.all.Load(), crowd.refused.Load(), crowd.reset.Load(), crowd.lost.Load())
			if crowd.refused.Load()+crowd.reset.Load()+crowd.lost.Load() > 0 || crowd.all.Load() == 0 {
				t.Errorf("the first of them: %v", crowd.first.Load())
			}
			if kind == "unix" {
				p.end(t)
				if _, err := os.Stat(p.addr); !errors.Is(err, os.ErrNotExist) {
					t.Errorf("the socket's file is still there: %v", err)
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
	dir := t.TempDir()
	p := &restarting{kind: kind, network: "tcp", pidFile: filepath.Join(dir, "pid"), log: filepath.Join(dir, "log")}
	// Who is slow, on a busy machine, is waited for; nobody is when all have gone.
	flags := []string{"-addr", "tcp://127.0.0.1:0", "-http", "localhost:0", "-pid", p.pidFile, "-drain", "1m", "-handover", filepath.Join(dir, "s")}
	switch kind {
	case "unix":
		p.network, p.addr = "unix", shortdir.Socket(t)
		flags[1] = "unix://" + p.addr
	case "TLS":
		pair, err := selfsigned.New(time.Now().Add(-time.Hour), time.Now().Add(time.Hour), "localhost")
		if err != nil {
			t.Fatal(err)
		}
		cert, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
		if err := selfsigned.WriteFiles(pair, cert, key); err != nil {
			t.Fatal(err)
		}
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
	t.Cleanup(func() { p.end(t) })
	p.await(t, 0)
	if kind != "unix" {
		text, _ := os.ReadFile(p.log)
		_, rest, _ := strings.Cut(string(text), "listening on tcp://")
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

// await waits until a process is in charge that is not old.
func (p *restarting) await(t *testing.T, old int) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); p.pid() == 0 || p.pid() == old; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			text, _ := os.ReadFile(p.log)
			t.Fatalf("no new process: %s", text)
		}
	}
}

// restart replaces the program and waits until the old process has ended.
func (p *restarting) restart(t *testing.T, i int) {
	t.Helper()
	old := p.pid()
	for deadline := time.Now().Add(2 * time.Minute); p.pid() == old; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			text, _ := os.ReadFile(p.log)
			t.Fatalf("restart %d: no new process: %s", i, text)
		}
		_ = syscall.Kill(old, syscall.SIGHUP) // it may be too early for it: then it says so
	}
	awaitExit(t, old)
}

func awaitExit(t *testing.T, pid int) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); running(pid); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("process %d does not end", pid)
		}
	}
}

// running reports whether a process is there, and is not one that has ended and that nobody has
// waited for.
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

// A crowd is clients that each ask once, and what they saw.
type crowd struct {
	all, refused, reset, lost atomic.Int64
	first                     atomic.Value // of the errors
}

// mostAtOnce is how many clients may be under way. A machine that cannot serve them at their rate
// has fewer come, and not ever more wait.
const mostAtOnce = 200

// come has clients come at a rate per second, until stop is closed, and waits for the last.
func (c *crowd) come(dial func() (net.Conn, error), rate int, stop <-chan struct{}) {
	tick := time.NewTicker(time.Second / time.Duration(rate))
	defer tick.Stop()
	places := make(chan struct{}, mostAtOnce)
	var wg sync.WaitGroup
	defer wg.Wait()
	for {
		select {
		case <-stop:
			return
		case <-tick.C:
			places <- struct{}{}
			wg.Go(func() {
				defer func() { <-places }()
				c.ask(dial)
			})
		}
	}
}

func (c *crowd) ask(dial func() (net.Conn, error)) {
	n := c.all.Add(1)
	conn, err := dial()
	if err != nil {
		c.note(&c.refused, err)
		return
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	if _, err := conn.Write(login(fmt.Sprint("client ", n))); err != nil {
		c.note(&c.reset, err)
		return
	}
	got := make([]byte, len(loggedIn))
	switch _, err := io.ReadFull(conn, got); {
	case errors.Is(err, syscall.ECONNRESET):
		c.note(&c.reset, err)
	case err != nil || !bytes.Equal(got, loggedIn):
		c.note(&c.lost, fmt.Errorf("%q, %w", got, err))
	}
}

func (c *crowd) note(n *atomic.Int64, err error) {
	n.Add(1)
	c.first.CompareAndSwap(nil, err.Error())
}
