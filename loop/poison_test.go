package loop_test

import (
	"context"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/looptest"
)

// forgetful makes the two mistakes: it keeps what was lent, and uses it in a job.
type forgetful struct {
	kept [][]byte
	jobs chan string
}

func (f *forgetful) OnMessage(c *loop.Conn, msg []byte) error {
	f.kept = append(f.kept, msg)
	returned := make(chan struct{})
	_ = c.Loop().Post(func() { close(returned) })
	return loop.Offload(c, func(context.Context) string { <-returned; return string(msg) }, func(_ *loop.Conn, s string) { f.jobs <- s })
}

func (*forgetful) OnClose(*loop.Conn, error) {}

// expect fails unless all that was kept is overwritten.
func (f *forgetful) expect(t *testing.T, got []string) {
	t.Helper()
	for _, b := range f.kept {
		got = append(got, string(b))
	}
	if slices.ContainsFunc(got, func(s string) bool { return !strings.HasPrefix("LENT NO LONGER. ", s) }) || len(got) != 6 {
		t.Errorf("kept %q", got)
	}
}

// Bytes that were lent are overwritten when they are lent no longer: always in looptest.
func TestPoisonInMemory(t *testing.T) {
	f := &forgetful{jobs: make(chan string, 3)}
	srv := &loop.Server{Codec: codec.Lines{}, Accept: func(*loop.Conn) loop.Handler { return f }}
	bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
		srv.Open().Send("one\ntwo\nthr", "ee\n")
		srv.Do(0, func(*loop.Loop) { f.expect(t, []string{<-f.jobs, <-f.jobs, <-f.jobs}) })
	})
}

// On real sockets Server.Debug.Strict does it, by TCP and UDP.
func TestPoisonReal(t *testing.T) {
	allEngines(t, func(t *testing.T, run func(srv *loop.Server)) {
		for _, network := range []string{"tcp", "udp"} {
			f := &forgetful{jobs: make(chan string, 3)}
			srv := &loop.Server{Addr: network + "://127.0.0.1:0", Debug: loop.Debug{Strict: true}, Accept: func(*loop.Conn) loop.Handler { return f }}
			if network == "tcp" {
				srv.Codec = codec.Lines{}
			}
			run(srv)
			c, err := net.Dial(network, srv.LocalAddr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			for _, line := range []string{"one\n", "two\n", "three\n"} {
				_, _ = c.Write([]byte(line))
			}
			var got []string
			for range 3 {
				got = append(got, receive(t, f.jobs, "an answer"))
			}
			done := make(chan struct{})
			_ = srv.Loops()[0].Post(func() { close(done) })
			receive(t, done, "the loop")
			f.expect(t, got)
		}
	})
}

// Long messages are poisoned as well, and a panic does not keep them from it.
func TestPoisonOfAPanic(t *testing.T) {
	var kept []byte
	srv := &loop.Server{Codec: codec.Lines{}, Accept: func(*loop.Conn) loop.Handler {
		return loop.HandlerFunc(func(_ *loop.Conn, msg []byte) error {
			kept = msg
			panic("oh")
		})
	}}
	bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
		srv.Open().Send(strings.Repeat("x", 40_000) + "\n")
		srv.Sleep(time.Second)
		if len(kept) != 40_000 || strings.Contains(string(kept), "x") {
			t.Errorf("%d bytes are kept, %.20q", len(kept), kept)
		}
	})
}
