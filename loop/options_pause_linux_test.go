package loop

import (
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/loopwheel/loopwheel/loop/internal/testhook"
)

// The options of a connection are the same after a pause and a move, on each engine.
func TestOptionsAfterAPause(t *testing.T) {
	if testhook.DefaultEngine() == "net" {
		t.Skip("the engine on Go's own net hands out no descriptors to ask")
	}
	options := [][2]int{
		{unix.SOL_SOCKET, unix.SO_KEEPALIVE}, {unix.IPPROTO_TCP, unix.TCP_KEEPIDLE}, {unix.IPPROTO_TCP, unix.TCP_KEEPINTVL},
		{unix.IPPROTO_TCP, unix.TCP_KEEPCNT}, {unix.IPPROTO_TCP, unix.TCP_NODELAY},
	}
	for name, tcp := range map[string]TCPOptions{
		"times": {KeepAlive: net.KeepAliveConfig{Idle: 300 * time.Second, Interval: 60 * time.Second, Count: 3}},
		"none":  {KeepAlive: net.KeepAliveConfig{Idle: -1}},
	} {
		t.Run(name, func(t *testing.T) {
			values := func(c *Conn) (v [5]int) {
				for i, o := range options {
					v[i], _ = unix.GetsockoptInt(c.sock.(interface{ FD() int }).FD(), o[0], o[1])
				}
				return v
			}
			before, after := make(chan [5]int, 1), make(chan [5]int, 1)
			srv := &Server{Addr: "tcp://127.0.0.1:0", NumLoops: 2, TCP: tcp, Accept: func(c *Conn) Handler {
				before <- values(c)
				c.PauseRead()
				c.AfterFunc(50*time.Millisecond, c.ResumeRead)
				return HandlerFunc(func(c *Conn, _ []byte) error {
					return c.MoveTo(c.loop.server.loops[1-c.loop.index], func(c *Conn) {
						c.AfterFunc(50*time.Millisecond, func() { after <- values(c) })
					})
				})
			}}
			if err := srv.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			client, err := net.Dial("tcp", srv.LocalAddr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			_, _ = client.Write([]byte("held"))
			if b, a := <-before, <-after; a != b {
				t.Errorf("before %v, after %v", b, a)
			}
		})
	}
}
