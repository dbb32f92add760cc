package main

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// A peer is a server that is measured. Serve prints the address with listening, and does not return
// unless it fails.
type peer struct {
	name  string
	serve func(setup) error
}

// A setup is what a server process is told by its environment.
type setup struct {
	loops   int
	timeout time.Duration // of idle connections, where the peer has one
}

const (
	loopsEnv   = "ECHO_LOOPS"
	timeoutEnv = "ECHO_TIMEOUT"
)

func names(peers []peer) (names []string) {
	for _, p := range peers {
		names = append(names, p.name)
	}
	return names
}

// runServer is a server process. Standard input is its leash: it ends with it.
func runServer(name string) error {
	var s setup
	s.loops, _ = strconv.Atoi(os.Getenv(loopsEnv))
	s.timeout, _ = time.ParseDuration(os.Getenv(timeoutEnv))
	for _, p := range slices.Concat(cellPeers, morePeers, floorPeers, idlePeers) {
		if p.name == name {
			go obey()
			return p.serve(s)
		}
	}
	return fmt.Errorf("no peer %q", name)
}

// listening tells the driver where to connect.
func listening(addr string) { fmt.Println(addr) }

// usage is what a server process has used.
type usage struct {
	CPU time.Duration // user's and system's
	RSS int           // bytes
}

// obey answers each line with the usage; "gc" collects all garbage before.
func obey() {
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		if in.Text() == "gc" {
			runtime.GC()
			debug.FreeOSMemory()
		}
		_ = json.NewEncoder(os.Stdout).Encode(usage{CPU: cpuTime(), RSS: resident()})
	}
	os.Exit(0)
}

func cpuTime() time.Duration {
	var r syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &r) != nil {
		return 0
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// resident returns the resident memory, 0 where the system has no /proc.
func resident() int {
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(b))
	pages, _ := strconv.Atoi(fields[1])
	return pages * os.Getpagesize()
}

// A process is a server, seen from the driver.
type process struct {
	name  string
	setup setup
	addr  string
	cmd   *exec.Cmd
	in    *os.File
	out   *bufio.Reader
}

// startServer runs this program again, as the server of a peer.
func startServer(name string, s setup) (*process, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	p := &process{name: name, setup: s, in: w, cmd: exec.Command(exe, "-serve", name)}
	p.cmd.Stdin, p.cmd.Stderr = r, os.Stderr
	p.cmd.Env = append(os.Environ(), fmt.Sprintf("GOMAXPROCS=%d", s.loops),
		fmt.Sprintf("%s=%d", loopsEnv, s.loops), fmt.Sprintf("%s=%v", timeoutEnv, s.timeout))
	out, err := p.cmd.StdoutPipe()
	if err == nil {
		err = p.cmd.Start()
	}
	if err != nil {
		w.Close()
		return nil, err
	}
	p.out = bufio.NewReader(out)
	late := p.killLater()
	p.addr, err = p.out.ReadString('\n')
	late.Stop()
	if err != nil {
		p.stop()
		return nil, fmt.Errorf("%s does not say where it listens: %w", name, err)
	}
	p.addr = strings.TrimSpace(p.addr)
	return p, nil
}

// patience is how long a server may take to answer: with its address, with what it has used, and to
// all who connect.
var patience = time.Minute

var errStuck = errors.New("it does not answer, and was killed")

// ask returns the server's usage, after what it is told to do.
func (p *process) ask(what string) (u usage, err error) {
	stuck := p.killLater()
	defer func() {
		if !stuck.Stop() {
			err = fmt.Errorf("%s: %w", p.name, errStuck)
		}
	}()
	if _, err = fmt.Fprintln(p.in, what); err != nil {
		return u, fmt.Errorf("%s: %w", p.name, err)
	}
	line, err := p.out.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &u)
	}
	if err != nil {
		return u, fmt.Errorf("%s has ended: %w", p.name, err)
	}
	return u, nil
}

// killLater ends the server when patience does, unless it is stopped.
func (p *process) killLater() *time.Timer {
	return time.AfterFunc(patience, func() { _ = p.cmd.Process.Kill() })
}

func (p *process) isOurs() bool { return strings.HasPrefix(p.name, "loopwheel") }

// again starts the server anew.
func (p *process) again() error {
	p.stop()
	fresh, err := startServer(p.name, p.setup)
	if err == nil {
		*p = *fresh
	}
	return err
}

func (p *process) stop() {
	_ = p.in.Close()
	time.AfterFunc(5*time.Second, func() { _ = p.cmd.Process.Kill() })
	_ = p.cmd.Wait()
}

// startServers starts all, or none.
func startServers(names []string, s setup) (all []*process, err error) {
	for _, name := range names {
		p, err := startServer(name, s)
		if err != nil {
			stopServers(all)
			return nil, err
		}
		all = append(all, p)
	}
	return all, nil
}

func stopServers(all []*process) {
	for _, p := range all {
		p.stop()
	}
}

// whole returns how many bytes at the start of b are whole frames.
func whole(b []byte) (n int) {
	for len(b)-n >= header {
		size := header + int(binary.BigEndian.Uint32(b[n:]))
		if len(b)-n < size {
			break
		}
		n += size
	}
	return n
}

// A remainder is what a connection has of a frame that is not whole yet, behind what is used.
type remainder struct {
	b    []byte
	used int
}

// frames returns the whole frames of what was left and what came, to be echoed as they are, and
// keeps the rest. They are valid until the next call, and no longer than in.
func (r *remainder) frames(in []byte) []byte {
	r.b = append(r.b[:0], r.b[r.used:]...)
	r.used = 0
	if len(r.b) == 0 {
		n := whole(in)
		r.b = append(r.b, in[n:]...)
		return in[:n]
	}
	r.b = append(r.b, in...)
	r.used = whole(r.b)
	return r.b[:r.used]
}
