package main

import (
	"bytes"
	"fmt"
	"log"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// A server is one of the two that are compared.
type server struct {
	name string
	port string
	cmd  *exec.Cmd

	group string // its control group: see limit
}

// startBoth starts demos/kv and redis-server, which keep nothing.
func startBoth(kv string) (a, b *server, stop func(), err error) {
	dir, err := os.MkdirTemp("", "kvbench")
	if err != nil {
		return nil, nil, nil, err
	}
	a, b = &server{name: "kv", port: freePort()}, &server{name: "redis-server", port: freePort()}
	if err := a.start(dir, kv, "-addr", "tcp://127.0.0.1:"+a.port, "-log", "error", "-notify-keyspace-events", "Ex"); err != nil {
		return nil, nil, nil, err
	}
	if err := b.start(dir, "redis-server", "--port", b.port, "--save", "", "--appendonly", "no",
		"--notify-keyspace-events", "Ex"); err != nil {
		a.stop()
		return nil, nil, nil, err
	}
	return a, b, func() {
		a.stop()
		b.stop()
		_ = os.RemoveAll(dir)
	}, nil
}

// cpuTime returns what the process has used until now.
func (s *server) cpuTime() (time.Duration, error) {
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(s.cmd.Process.Pid), "stat"))
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+2:]))
	user, err1 := strconv.Atoi(fields[11])
	system, err2 := strconv.Atoi(fields[12])
	if err1 != nil || err2 != nil {
		return 0, fmt.Errorf("%s: %q", s.name, stat)
	}
	return time.Duration(user+system) * 10 * time.Millisecond, nil // ticks of 1/100 s
}

func (s *server) start(dir, path string, args ...string) error {
	s.cmd = exec.Command(path, args...)
	s.cmd.Dir = dir
	s.cmd.Stderr = os.Stderr
	if err := s.cmd.Start(); err != nil {
		return err
	}
	for range 6000 { // a minute
		if c, err := net.Dial("tcp", "127.0.0.1:"+s.port); err == nil {
			return c.Close()
		}
		time.Sleep(10 * time.Millisecond)
	}
	s.stop()
	return fmt.Errorf("%s does not listen", s.name)
}

func (s *server) stop() {
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
	if s.group != "" {
		_ = os.Remove(s.group)
	}
}

// freePort returns a port that nobody listens on.
func freePort() string {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	defer ln.Close()
	_, port, _ := net.SplitHostPort(ln.Addr().String())
	return port
}

// memory returns the resident memory of the process in MiB.
func (s *server) memory() int {
	status, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(s.cmd.Process.Pid), "status"))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(status), "VmRSS:")
	kib, _ := strconv.Atoi(strings.Fields(rest)[0])
	return kib >> 10
}
