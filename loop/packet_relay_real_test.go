package loop_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/internal/rig"
	"github.com/loopwheel/loopwheel/loop"
)

// A server asks another by UDP for its clients, as a forwarder of DNS does. It listens by UDP and
// TCP at one port. Each question it dials for leaves from a port of its own, as a port that is hard
// to guess keeps forged answers out, and no socket is left behind.
func TestUDPRelay(t *testing.T) {
	bothEngines(t, func(t *testing.T, ctx context.Context) {
		upstream, err := net.ListenPacket("udp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer upstream.Close()
		ports := make(chan string, 1000)
		go func() {
			buf := make([]byte, 2048)
			for {
				n, from, err := upstream.ReadFrom(buf)
				if err != nil {
					return
				}
				ports <- from.String()
				_, _ = upstream.WriteTo(append([]byte("answer to "), buf[:n]...), from)
			}
		}()
		dialer := loop.Dialer{Timeout: patience}
		relay := func(c *loop.Conn, question []byte) error {
			question, client := bytes.Clone(question), c.Ref()
			dialer.Dial(c.Loop(), "udp://"+upstream.LocalAddr().String(), func(up *loop.Conn, err error) loop.Handler {
				if err == nil {
					err = up.Send(question)
				}
				if err != nil {
					t.Error(err)
					return nil
				}
				return loop.HandlerFunc(func(up *loop.Conn, answer []byte) error {
					answer = bytes.Clone(answer)
					up.Close()
					return client.Tell(func(c *loop.Conn) { _ = c.Send(answer) })
				})
			})
			return nil
		}
		srv := startAtOnePort(t, ctx, func(*loop.Conn) loop.Handler { return loop.HandlerFunc(relay) })

		const questions = 300
		udp := dialUDP(t, srv.Addrs()[0])
		tcp, err := net.Dial("tcp", srv.Addrs()[1].String())
		if err != nil {
			t.Fatal(err)
		}
		defer tcp.Close()
		_ = tcp.SetDeadline(time.Now().Add(patience))
		seen := make(map[string]bool)
		for i := range questions {
			question := fmt.Sprint("question ", i)
			want := "answer to " + question
			var got string
			if i%2 == 0 {
				got = string(udp.ask([]byte(question)))
			} else {
				_, _ = fmt.Fprintf(tcp, "%s\n", question)
				line := make([]byte, len(want)+1)
				if _, err := io.ReadFull(tcp, line); err != nil {
					t.Fatal(err)
				}
				got = string(line[:len(want)])
			}
			if got != want {
				t.Fatalf("got %q, want %q", got, want)
			}
			seen[<-ports] = true
		}
		if len(seen) < questions*9/10 {
			t.Errorf("%d questions came from %d ports", questions, len(seen))
		}
		rig.HasConns(t, srv, 2) // those of the clients
	})
}

// startAtOnePort starts a server that listens by UDP, and for lines by TCP, at the same free port.
func startAtOnePort(t *testing.T, ctx context.Context, accept func(*loop.Conn) loop.Handler) *loop.Server {
	t.Helper()
	for range 100 {
		probe, err := net.Listen("tcp", "127.0.0.1:0") // free for TCP, and perhaps for UDP
		if err != nil {
			t.Fatal(err)
		}
		addr := probe.Addr().String()
		probe.Close()
		pc, err := net.ListenPacket("udp", addr)
		if err != nil {
			continue
		}
		pc.Close()
		srv := &loop.Server{Addr: "udp://" + addr, NumLoops: 1, Accept: accept,
			Listeners: []loop.Listener{{Addr: "tcp://" + addr, Codec: codec.Lines{}}}}
		startWith(t, ctx, srv)
		return srv
	}
	t.Fatal("no port is free for UDP and TCP")
	return nil
}
