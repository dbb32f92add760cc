//go:build linux

package main

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/loopwheel/loopwheel/bench/internal/measure"
)

// A peer is a server that is measured.
type peer struct {
	name  string
	title string // in tables
	serve func(setup) error
	needs []string // programs and files, for what is not Go
	mute  bool     // it answers nothing
	slow  bool     // at first, as it compiles while it runs
}

// A setup configures a server.
type setup struct {
	Loops   int
	Timeout time.Duration // of idle connections, where the peer has one
	TLS     bool
	To      string // where a proxy leads
	Dir     string // for what is made
}

func names(peers []peer) (names []string) {
	for _, p := range peers {
		names = append(names, p.name)
	}
	return names
}

// missing tells what the peer needs and is not installed.
func (p peer) missing() string {
	for _, what := range p.needs {
		_, err := exec.LookPath(what)
		if strings.HasPrefix(what, "/") {
			_, err = os.Stat(what)
		}
		if err != nil {
			return fmt.Sprintf("it needs %s (%v)", what, err)
		}
	}
	return ""
}

// runServer is a server process. It prints its address, and does not return unless it fails.
func runServer(name, told string) error {
	var s setup
	if err := json.Unmarshal([]byte(told), &s); err != nil {
		return err
	}
	for _, p := range slices.Concat(echoPeers, tlsPeers, proxyPeers) {
		if p.name == name {
			go measure.Obey(nil)
			return p.serve(s)
		}
	}
	return fmt.Errorf("no peer %q", name)
}

// A server is a process, seen from the driver.
type server struct {
	*measure.Process
	peer  peer
	setup setup
}

func startServer(p peer, s setup) (*server, error) {
	told, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	process, err := measure.Self(p.name, s.Loops, "-serve", p.name, "-setup", string(told))
	if err != nil {
		return nil, err
	}
	return &server{process, p, s}, nil
}

// collect has the server give back what is garbage, if it knows of such a thing.
func (s *server) collect() error {
	if s.peer.mute {
		return nil
	}
	_, err := s.Ask("gc")
	return err
}

// startServers starts all, or none.
func startServers(peers []peer, s setup) (all []*server, err error) {
	for _, p := range peers {
		started, err := startServer(p, s)
		if err != nil {
			stopServers(all)
			return nil, err
		}
		all = append(all, started)
	}
	return all, nil
}

func stopServers(all []*server) {
	for _, s := range all {
		s.End()
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

// A remainder is what a connection has of a frame that is not whole yet, after what is used.
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
