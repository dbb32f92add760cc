package handover_test

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop/handover"
)

// This file is about the successors that RestartOn starts. They share the output of the first
// process, whose says hears them, too.

// makeHang has the successors hang in cfg.Place until goOn is called.
func makeHang(t *testing.T, cfg serverConfig) (goOn func()) {
	t.Helper()
	if err := os.WriteFile(cfg.Path+".hangs", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	return func() { _ = os.Remove(cfg.Path + ".hangs") }
}

// A successor that hangs before Open is killed by a signal that comes later, for another one; until
// then a signal changes nothing.
func TestRestartOn(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes 5 s to be sure that a successor hangs")
	}
	cfg := serverConfig{Addr: "tcp://" + testkit.FreeAddr(t), Path: filepath.Join(t.TempDir(), "s"), Place: "begin", Does: "hang"}
	old := runWith(t, cfg)
	defer old.in.Close() // which ends the successor, too: it has the same
	old.says("serves")
	c := newCrowd(t, 5*time.Millisecond)
	c.join(cfg.Addr[6:], 20, nil)
	goOn := makeHang(t, cfg)
	_ = old.cmd.Process.Signal(syscall.SIGHUP)
	time.Sleep(5500 * time.Millisecond)
	_ = old.cmd.Process.Signal(syscall.SIGHUP) // the first is killed
	time.Sleep(200 * time.Millisecond)
	_ = old.cmd.Process.Signal(syscall.SIGHUP) // the second has its time
	if cut := c.settle(); cut > 0 {
		t.Errorf("%d connections are cut by a successor that hangs", cut)
	}
	goOn()
	if n, ok := old.says("serves"); n != 20 || !ok { // the successor says so, on the same output
		t.Errorf("%d have moved, want 20: %q", n, old.said)
	}
	if cut := c.settle(); cut > 0 {
		t.Errorf("%d connections are cut", cut)
	}
	c.leave()
}

// The program may leave the directory that it was started in by a relative path, and that directory
// may be gone.
func TestRestartAfterChdir(t *testing.T) {
	program, err := filepath.Abs(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	gone := filepath.Join(t.TempDir(), "gone")
	for name, start := range map[string]func(*exec.Cmd){
		"relative path": func(c *exec.Cmd) { c.Dir, c.Args[0] = filepath.Dir(program), "./"+filepath.Base(program) },
		"gone":          func(c *exec.Cmd) { c.Dir, c.Args[0] = gone, program },
	} {
		t.Run(name, func(t *testing.T) {
			cfg := serverConfig{Addr: "tcp://" + testkit.FreeAddr(t), Path: filepath.Join(t.TempDir(), "s"), Place: "begin", Does: "leave its directory"}
			_ = os.Mkdir(gone, 0o700)
			old := runWith(t, cfg, func(c *exec.Cmd) { c.Path = program; start(c) })
			defer old.in.Close()
			old.says("serves")
			_ = os.Remove(gone)
			_ = old.cmd.Process.Signal(syscall.SIGHUP)
			if _, ok := old.says("serves"); !ok {
				t.Errorf("no successor takes over: %q", old.said)
			}
		})
	}
}

// A successor that hangs blocks no restart. Between Open and Ready it is killed after StartTimeout;
// one whose handover has failed, and that does not end, is killed by the next signal.
func TestHangingSuccessor(t *testing.T) {
	for name, cfg := range map[string]serverConfig{
		"after Open": {Place: "opened", StartTimeout: 2 * time.Second},
		"in Restore": {Place: "restore", WithState: true, Timeout: 500 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			cfg.Addr, cfg.Path, cfg.Does = "tcp://"+testkit.FreeAddr(t), filepath.Join(t.TempDir(), "s"), "hang"
			old := runWith(t, cfg)
			defer old.in.Close()
			old.says("serves")
			goOn := makeHang(t, cfg)
			defer goOn()
			_ = old.cmd.Process.Signal(syscall.SIGHUP)
			old.says("hangs")
			goOnAfterOther(t, old, goOn)
		})
	}
}

// A successor that waits behind a State's method that hangs, and one that hangs in Restore, is killed
// after StartTimeout: nothing comes of it, and a signal that finds it does nothing.
func TestSuccessorOfAStateThatHangs(t *testing.T) {
	const startTimeout = 1500 * time.Millisecond
	for _, place := range []string{"freeze", "restore"} {
		t.Run(place, func(t *testing.T) {
			t.Parallel()
			cfg := serverConfig{Addr: "tcp://" + testkit.FreeAddr(t), Path: filepath.Join(t.TempDir(), "s"),
				WithState: true, Place: place, Does: "hang", Timeout: 300 * time.Millisecond, StartTimeout: startTimeout}
			old := runWith(t, cfg)
			defer old.in.Close()
			old.says("serves")
			goOn := makeHang(t, cfg)
			defer goOn()
			_ = old.cmd.Process.Signal(syscall.SIGHUP)
			old.says("hangs")
			began := time.Now()
			if place == "freeze" { // the old process refuses the first one, which ends
				testkit.Eventually(t, "the first successor ends", func() bool { return len(children(old.pid)) == 0 })
				_ = old.cmd.Process.Signal(syscall.SIGHUP)
				testkit.Eventually(t, "there is a second one", func() bool { return len(children(old.pid)) == 1 })
				began = time.Now()
			}
			testkit.Eventually(t, "the successor is killed", func() bool { return len(children(old.pid)) == 0 })
			if took := time.Since(began); took < startTimeout/2 {
				t.Errorf("it ends after %v, want more than %v", took, startTimeout/2)
			}
			goOn()
			_ = old.cmd.Process.Signal(syscall.SIGHUP)
			if _, ok := old.says("serves"); !ok {
				t.Errorf("no other successor takes over: %q", old.said)
			}
		})
	}
}

// If the old process dies before the next one is ready, that keeps the addresses, and a client that
// comes meanwhile waits there.
func TestOldOneDiesBeforeReady(t *testing.T) {
	cfg := serverConfig{Addr: "tcp://" + testkit.FreeAddr(t), Path: filepath.Join(t.TempDir(), "s"), Place: "opened", Does: "hang"}
	old := runWith(t, cfg)
	old.says("serves")
	goOn := makeHang(t, cfg)
	defer goOn()
	next := runWith(t, cfg)
	next.says("hangs")
	old.kill()
	nc, err := net.Dial("tcp", cfg.Addr[6:])
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	goOn()
	next.says("serves")
	_, _ = fmt.Fprintln(nc, "x")
	want := fmt.Sprintf("%d 1 x\n", next.pid)
	if got, err := bufio.NewReader(nc).ReadString('\n'); err != nil || got != want {
		t.Errorf("heard %q, %v; want %q", got, err, want)
	}
}

// children returns the processes that a process has started and that run.
func children(parent int) (pids []int) {
	all, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, file := range all {
		text, _ := os.ReadFile(file)
		_, rest, _ := strings.Cut(string(text), ") ")
		var state string
		var of int
		if _, err := fmt.Sscan(rest, &state, &of); err == nil && of == parent && state != "Z" {
			pids = append(pids, number(filepath.Base(filepath.Dir(file)), 0))
		}
	}
	return pids
}

// goOnAfterOther sends signals until a second successor hangs, and then until one takes over.
func goOnAfterOther(t *testing.T, old *process, goOn func()) {
	t.Helper()
	end := make(chan struct{})
	defer close(end)
	go func() {
		for {
			select {
			case <-end:
				return
			case <-time.After(100 * time.Millisecond):
				_ = old.cmd.Process.Signal(syscall.SIGHUP)
			}
		}
	}()
	old.says("hangs") // the second one
	goOn()
	if _, ok := old.says("serves"); !ok {
		t.Errorf("no other successor takes over: %q", old.said)
	}
}

// A process that is to end starts no successor any more.
func TestSignalWhileItDrains(t *testing.T) {
	cfg := serverConfig{Addr: "tcp://" + testkit.FreeAddr(t), Path: filepath.Join(t.TempDir(), "s"), Delay: time.Second}
	old := runWith(t, cfg)
	defer old.in.Close()
	old.says("serves")
	nc, err := net.Dial("tcp", cfg.Addr[6:])
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	_ = old.cmd.Process.Signal(syscall.SIGTERM)
	testkit.Eventually(t, "it drains", func() bool {
		nc, err := net.Dial("tcp", cfg.Addr[6:])
		if err == nil {
			nc.Close()
		}
		return err != nil
	})
	_ = old.cmd.Process.Signal(syscall.SIGHUP)
	if _, ok := old.says("opened"); ok {
		t.Error("it starts another process, which serves")
	} else if code := old.cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("it ends with %d, want 0", code)
	}
}

// Where the system does not tell the number of the process at the other end, the process says it:
// so the old one knows its successor, and does not take it for one that has not called Open while
// it drains for longer than StartTimeout.
func TestSuccessorSaysWhoItIs(t *testing.T) {
	cfg := serverConfig{Addr: "tcp://" + testkit.FreeAddr(t), TLS: "tcp://" + testkit.FreeAddr(t), Path: filepath.Join(t.TempDir(), "s"),
		HidesPeers: true, StartTimeout: 2 * time.Second, Delay: 10 * time.Second}
	old := runWith(t, cfg)
	defer old.in.Close()
	old.says("serves")
	nc, err := tls.Dial("tcp", cfg.TLS[6:], &tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS12})
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	stays, moves := &client{t, nc, bufio.NewReader(nc)}, dialAddr(t, net.TCPAddrFromAddrPort(netip.MustParseAddrPort(cfg.Addr[6:])))
	answers := func(c *client) (pid int) {
		c.say("a line\n")
		line, err := c.in.ReadString('\n')
		if _, e := fmt.Sscan(line, &pid); err != nil || e != nil {
			t.Errorf("the answer is %q, %v", line, err)
		}
		return pid
	}
	if a, b := answers(stays), answers(moves); a != old.pid || b != old.pid {
		t.Errorf("processes %d and %d answer, want %d", a, b, old.pid)
	}
	began := time.Now()
	_ = old.cmd.Process.Signal(syscall.SIGHUP)
	if pid, _ := old.says("predecessor"); pid != old.pid {
		t.Errorf("the successor reports process %d as its predecessor, want %d", pid, old.pid)
	}
	old.says("serves")
	time.Sleep(time.Until(began.Add(cfg.StartTimeout + time.Second)))
	if a, b := answers(stays), answers(moves); a != old.pid || b == old.pid {
		t.Errorf("processes %d and %d answer after StartTimeout, want %d and its successor", a, b, old.pid)
	}
}

// A successor that has not taken over when the old process ends ends with it: at its Open it would
// find nobody, and serve.
func TestEndsWithASuccessor(t *testing.T) {
	cfg := serverConfig{Addr: "tcp://" + testkit.FreeAddr(t), Path: filepath.Join(t.TempDir(), "s"), Place: "begin", Does: "hang"}
	old := runWith(t, cfg)
	defer old.in.Close()
	old.says("serves")
	goOn := makeHang(t, cfg)
	defer goOn()
	_ = old.cmd.Process.Signal(syscall.SIGHUP)
	old.says("hangs")
	_ = old.cmd.Process.Signal(syscall.SIGTERM)
	time.AfterFunc(3*time.Second, goOn) // in case it lives
	if _, ok := old.says("opened"); ok {
		t.Error("the successor goes on, and serves")
	}
}

// Without the meeting socket no process can take over: both the old one and the next one say so.
func TestDeletedSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	srv := lines("a")
	logged := make(lineWriter, 9)
	srv.Logger = zerolog.New(logged)
	h := serves(t, srv, handover.Config{Path: path})
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	handover.Restart(h)
	if got := testkit.Receive(t, "a line of the log", (chan string)(logged)); !strings.Contains(got, "cannot start the next process") || !strings.Contains(got, path) {
		t.Errorf("logged %q, want that %s is gone", got, path)
	}
	next := lines("b")
	next.Addr = "tcp://" + srv.LocalAddr().String()
	_, err := open(t, next, handover.Config{Path: path})
	if !errors.Is(err, syscall.EADDRINUSE) || !strings.Contains(err.Error(), "no process was found at Config.Path "+path) {
		t.Errorf("got %v, want that no process was found at %s", err, path)
	}
}

// Close ends the goroutine of RestartOn.
func TestCloseEndsRestartOn(t *testing.T) {
	srv := lines("a")
	srv.Logger = zerolog.Nop()
	h, err := handover.Open(t.Context(), srv, handover.Config{})
	if err != nil {
		t.Fatal(err)
	}
	waiting := func() bool {
		stacks := make([]byte, 1<<20)
		return strings.Contains(string(stacks[:runtime.Stack(stacks, true)]), "(*Handover).RestartOn.func")
	}
	h.RestartOn(syscall.SIGUSR2)
	testkit.Eventually(t, "RestartOn waits", waiting)
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "its goroutine has ended", func() bool { return !waiting() })
}

// A successor that waits because the handover to another one takes long is not killed for that.
func TestSuccessorWaitsForAnother(t *testing.T) {
	cfg := serverConfig{Addr: "tcp://" + testkit.FreeAddr(t), Path: filepath.Join(t.TempDir(), "s"), Timeout: 500 * time.Millisecond, StartTimeout: time.Second}
	old := runWith(t, cfg)
	defer old.in.Close()
	old.says("serves")
	c := newCrowd(t, 5*time.Millisecond)
	c.join(cfg.Addr[6:], 20, nil)
	slow := cfg
	slow.Place, slow.Number, slow.Does = "accept", 5, "hang"
	goOn := makeHang(t, cfg)
	defer goOn()
	other := runWith(t, slow)
	other.says("hangs")
	time.Sleep(2 * cfg.Timeout) // then it is late, and the old process accepts again
	_ = old.cmd.Process.Signal(syscall.SIGHUP)
	time.Sleep(cfg.StartTimeout + time.Second)
	goOn()
	other.says("serves")
	if n, ok := old.says("serves"); n != 20 || !ok { // the successor says so, on the same output
		t.Errorf("%d have moved to the successor that waited, want 20: %q", n, old.said)
	}
	if cut := c.settle(); cut > 0 {
		t.Errorf("%d connections are cut", cut)
	}
	c.leave()
}

// The predecessor is the process that has handed over, and not the one that was in charge when this
// one dialed.
func TestPredecessorOfAThird(t *testing.T) {
	cfg := serverConfig{Addr: "tcp://" + testkit.FreeAddr(t), Path: filepath.Join(t.TempDir(), "s"), WithState: true}
	runWith(t, cfg).says("serves")
	slow := cfg
	slow.Place, slow.Does = "restore", "hang"
	goOn := makeHang(t, cfg)
	defer goOn()
	second := runWith(t, slow)
	second.says("hangs")
	third := runWith(t, cfg)
	time.Sleep(time.Second) // it has dialed
	goOn()
	if pid, _ := third.says("predecessor"); pid != second.pid {
		t.Errorf("the predecessor of the third process is %d, want %d", pid, second.pid)
	}
}

// A process that cannot have the descriptors for all connections and for its own needs is refused.
func TestFewDescriptors(t *testing.T) {
	cfg := serverConfig{Addr: "tcp://" + testkit.FreeAddr(t), Path: filepath.Join(t.TempDir(), "s")}
	old := runWith(t, cfg)
	old.says("serves")
	c := newCrowd(t, 5*time.Millisecond)
	c.join(cfg.Addr[6:], 100, nil)
	c.settle()
	cfg.Place, cfg.Does = "begin", "allow few descriptors"
	if _, ok := runWith(t, cfg).says("opened"); ok {
		t.Error("a process with too few descriptors is welcome")
	}
	if cut := c.settle(); cut > 0 {
		t.Errorf("%d connections are cut", cut)
	}
	c.leave()
}
