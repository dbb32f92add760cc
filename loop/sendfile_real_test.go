package loop_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"testing"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop"
)

// On real sockets a file arrives whole and in its place, over TCP, a unix socket and TLS; so do
// buffers of Writev, which are more than the system takes at once.
func TestSendFileOnSockets(t *testing.T) {
	f, data := fileOf(t, 3<<20+17)
	var bufs net.Buffers
	var joined []byte
	for i := range 2000 {
		bufs = append(bufs, data[i*700:][:i%700])
		joined = append(joined, bufs[i]...)
	}
	want := fmt.Appendf(nil, "before%safter%s", data, joined)
	for name, srv := range map[string]*loop.Server{
		"tcp":  {Addr: "tcp://127.0.0.1:0"},
		"unix": {Addr: "unix://" + testkit.SocketPath(t)},
		"tls":  {Addr: "tcp://127.0.0.1:0", TLS: serverTLS()},
	} {
		t.Run(name, func(t *testing.T) {
			for _, engine := range []loop.Engine{loop.EngineGnet, loop.EngineEpoll, loop.EngineNet} {
				if !loop.HasEngine(engine) {
					continue
				}
				t.Run(fmt.Sprint("engine ", engine), func(t *testing.T) {
					srv := &loop.Server{Addr: srv.Addr, TLS: srv.TLS, Engine: engine, NumLoops: 1, Codec: codec.Lines{}, Limits: loop.Limits{MaxOutbound: 8 << 20}}
					done := make(chan error, 2)
					srv.Accept = with(func(c *loop.Conn) {
						_, _ = c.Write([]byte("before"))
						if err := c.SendFile(f, 0, int64(len(data)), func(err error) {
							done <- err
							_, err = c.Writev(bufs)
							done <- err
							c.Close()
						}); err != nil {
							t.Error(err)
						}
						_, _ = c.Write([]byte("after"))
					})
					startWith(t, context.Background(), srv)
					got, err := io.ReadAll(dialTo(t, srv))
					testkit.WantErr(t, "reading", err, nil)
					if !bytes.Equal(got, want) {
						t.Errorf("received %d bytes, want %d, the first other than wanted at %d", len(got), len(want), firstOther(string(got), string(want)))
					}
					testkit.WantErr(t, "done", testkit.Receive(t, "done", done), nil)
					testkit.WantErr(t, "Writev", testkit.Receive(t, "Writev", done), nil)
				})
			}
		})
	}
}

// dialTo connects to srv, by TLS if it speaks that.
func dialTo(t *testing.T, srv *loop.Server) net.Conn {
	t.Helper()
	addr := srv.LocalAddr()
	c, err := net.Dial(addr.Network(), addr.String())
	if err == nil && srv.TLS != nil {
		c = tls.Client(c, &tls.Config{InsecureSkipVerify: true})
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// A peer that resets amid a file ends it: done is called, and then OnClose.
func TestSendFileToAPeerThatResets(t *testing.T) {
	f, data := fileOf(t, 8<<20)
	bothEngines(t, func(t *testing.T, ctx context.Context) {
		order := make(chan string, 2)
		srv := &loop.Server{Addr: "tcp://127.0.0.1:0", NumLoops: 1, Accept: func(c *loop.Conn) loop.Handler {
			if err := c.SendFile(f, 0, int64(len(data)), func(err error) { order <- fmt.Sprint("done ", err) }); err != nil {
				t.Error(err)
			}
			return script{Close: func(*loop.Conn, error) { order <- "closed" }}
		}}
		startWith(t, ctx, srv)
		c := dialTo(t, srv)
		if _, err := io.ReadFull(c, make([]byte, 100_000)); err != nil {
			t.Fatal(err)
		}
		_ = c.(*net.TCPConn).SetLinger(0)
		_ = c.Close()
		testkit.Want(t, "first", testkit.Receive(t, "done", order), "done "+loop.ErrClosed.Error())
		testkit.Want(t, "then", testkit.Receive(t, "OnClose", order), "closed")
	})
}
