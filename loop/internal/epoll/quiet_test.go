//go:build linux && !386 && !s390x

package epoll

import (
	"net"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop/internal/engine"
	"github.com/loopwheel/loopwheel/loop/internal/sockets"
)

// A paused is a sink that pauses its socket and ends the output.
type paused struct {
	sock  engine.Socket
	heard string
	ended bool
}

func (p *paused) Readable(b []byte) { p.heard += string(b) }
func (*paused) Room([]byte) int     { return 0 }
func (p *paused) Writable()         {}
func (p *paused) Ended(error)       { p.ended = true }

// A socket that is paused and has ended both ways, which epoll reports for ever, does not keep its
// loop busy until it is resumed; nor does one that goes on writing after the peer's end.
func TestEndedSocketsAreQuiet(t *testing.T) {
	for _, network := range []string{"tcp", "unix"} {
		t.Run(network, func(t *testing.T) {
			address := "127.0.0.1:0"
			if network == "unix" {
				address = testkit.SocketPath(t)
			}
			ln, err := net.Listen(network, address)
			if err != nil {
				t.Fatal(err)
			}
			defer ln.Close()
			peer, err := net.Dial(network, ln.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			nc, err := ln.Accept()
			if err != nil {
				t.Fatal(err)
			}
			l := bareLoop(t, nobody{})
			sink := &paused{}
			l.Enroll(nc, func(s engine.Socket) engine.Sink {
				sink.sock = s
				if err := s.Pause(); err != nil {
					t.Error(err)
				}
				s.CloseWrite()
				return sink
			}, func(err error) { t.Errorf("lost: %v", err) })
			l.rounds(0)
			if _, err := peer.Write([]byte("last words")); err != nil {
				t.Fatal(err)
			}
			_ = peer.Close()
			fd := sockets.Descriptor(l.fd)
			testkit.Eventually(t, "it has ended both ways", func() bool { return sink.sock.(*socket).Poll()&unix.POLLHUP != 0 })
			quiet := func(what string) {
				l.rounds(0)
				if got := fd.Poll(); got != 0 {
					t.Errorf("%s is reported again: %#x, want 0", what, got)
				}
			}
			quiet("a paused socket that has ended")
			sink.sock.NotifyWritable()
			quiet("one that writes on")
			sink.sock.Resume()
			l.rounds(0)
			testkit.Want(t, "heard", sink.heard, "last words")
			testkit.Want(t, "ended", sink.ended, true)
		})
	}
}

type nobody struct{ engine.Host }

func (nobody) OnWake() {}
