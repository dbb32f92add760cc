//go:build linux

package main

import (
	"bytes"
	"encoding/binary"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestMain lets this binary be a server, as the command is.
func TestMain(m *testing.M) {
	if slices.Contains(os.Args, "-serve") {
		main()
	}
	os.Exit(m.Run())
}

// started returns a server of a peer, which ends with the test.
func started(t *testing.T, p peer, s setup) *server {
	t.Helper()
	if reason := p.missing(); reason != "" {
		t.Skip(reason)
	}
	s.Loops, s.Dir = 1, t.TempDir()
	srv, err := startServer(p, s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(srv.End)
	return srv
}

// Each peer echoes small and large frames, whatever pieces they come in, and is measured.
func TestPeers(t *testing.T) {
	o := &options{window: 200 * time.Millisecond, idlers: 20}
	backend := started(t, netPeer, setup{Timeout: time.Minute})
	for name, peers := range map[string][]peer{"echo": echoPeers, "tls": tlsPeers, "proxy": proxyPeers} {
		for _, p := range peers {
			t.Run(name+"/"+p.name, func(t *testing.T) {
				s := setup{Timeout: time.Minute, TLS: name == "tls"}
				if name == "proxy" {
					s.To = backend.Addr
				}
				srv := started(t, p, s)
				for _, c := range []cell{{conns: 3, size: 64, depth: 1}, {conns: 3, size: 64, depth: 16}, {conns: 2, size: 16 << 10, depth: 16},
					{conns: 2, size: 256 << 10, depth: 1}, {conns: 3, size: 64, rate: 1000}, {conns: 3, size: 64, anew: true}} {
					figures, err := o.measure(srv, c)
					if err != nil {
						t.Fatalf("%s: %v", c, err)
					}
					for _, f := range figures {
						if f.value <= 0 {
							t.Errorf("%s: %+v", c, f)
						}
					}
				}
				if _, err := o.idle(srv, 64); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// A peer that goes away in the middle of a frame leaves nothing to do.
func TestHalfFrames(t *testing.T) {
	for _, p := range echoPeers {
		t.Run(p.name, func(t *testing.T) {
			srv := started(t, p, setup{Timeout: time.Minute})
			for range 20 {
				c, err := net.Dial("tcp", srv.Addr)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := c.Write(frame(64)[:header+1]); err != nil {
					t.Fatal(err)
				}
				c.Close()
			}
			rested := 0 // a tenth of a second, so often
			for tries := 0; rested < 5; tries++ {
				before := srv.CPU()
				time.Sleep(100 * time.Millisecond) // the time over which it is measured
				took := srv.CPU() - before
				if rested++; took > 30*time.Millisecond {
					rested = 0
				}
				if tries > 100 {
					t.Fatalf("it took %v of the last 100 ms", took)
				}
			}
		})
	}
}

// Frames are found in whatever pieces they come.
func TestRemainder(t *testing.T) {
	var wire []byte
	for n := range 40 {
		wire = binary.BigEndian.AppendUint32(wire, uint32(n))
		wire = append(wire, strings.Repeat("x", n)...)
	}
	for step := 1; step < 100; step++ {
		var r remainder
		var got []byte
		for rest := wire; len(rest) > 0; {
			n := min(step, len(rest))
			got = append(got, r.frames(rest[:n])...)
			rest = rest[n:]
		}
		if !bytes.Equal(got, wire) {
			t.Errorf("in pieces of %d: %d bytes of %d", step, len(got), len(wire))
		}
	}
}
