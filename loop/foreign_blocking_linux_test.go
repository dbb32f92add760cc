package loop_test

import (
	"io"
	"net"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/internal/testhook"
)

// tuned is a listener of a user's who sets options of each connection by File and Fd, which makes
// the socket blocking.
type tuned struct{ net.Listener }

func (l tuned) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	f, err := c.(interface{ File() (*os.File, error) }).File()
	if err != nil {
		return nil, err
	}
	defer f.Close()
	fd := int(f.Fd())
	return c, unix.SetNonblock(fd, false) // older versions of Go do this in Fd
}

// A connection whose socket blocks, as somebody made it so before it came here, does not block its
// loop.
func TestForeignListenerOfBlockingSockets(t *testing.T) {
	if testhook.DefaultEngine() == "net" {
		t.Skip("the engine on Go's own net reads and writes on goroutines: run it without LOOPWHEEL_ENGINE=net, as CI does, too")
	}
	for _, network := range []string{"tcp", "unix"} {
		t.Run(network, func(t *testing.T) {
			addr := "127.0.0.1:0"
			if network == "unix" {
				addr = "@" + t.Name() + time.Now().String()
			}
			ln, err := net.Listen(network, addr)
			if err != nil {
				t.Fatal(err)
			}
			flood := make([]byte, 64<<10)
			at := start(t, &loop.Server{Listeners: []loop.Listener{{AcceptFrom: tuned{ln}}}, NumLoops: 1, Accept: func(*loop.Conn) loop.Handler {
				return script{Message: func(c *loop.Conn, msg []byte) error {
					if msg[0] == 'x' {
						return c.Send(msg)
					}
					for range 400 {
						if err := c.Send(flood); err != nil {
							return err
						}
					}
					return nil
				}}
			}})
			var conns [2]net.Conn
			for i := range conns {
				if conns[i], err = net.Dial(at.Network(), at.String()); err != nil {
					t.Fatal(err)
				}
				defer conns[i].Close()
				_ = conns[i].SetDeadline(time.Now().Add(patience))
			}
			_, _ = conns[0].Write([]byte{'f'}) // and does not read
			for range 3 {
				if _, err := conns[1].Write([]byte{'x'}); err != nil {
					t.Fatal(err)
				}
				if _, err := io.ReadFull(conns[1], make([]byte, 1)); err != nil {
					t.Fatal("the loop is blocked: ", err)
				}
			}
		})
	}
}
