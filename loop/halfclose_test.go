package loop_test

import (
	"io"
	"net"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/loop"
)

// A real peer that ends its own direction, as nc -N does, and then reads slowly gets all of what it asked for, and then
// the end; over TCP and over a unix socket.
func TestRealHalfCloseDelivers(t *testing.T) {
	for _, addr := range []string{"tcp://127.0.0.1:0", "unix://" + t.TempDir() + "/x.sock"} {
		const answer = 8 << 20
		reasons := make(chan error, 1)
		srv := &loop.Server{
			Addr: addr, Codec: codec.Lines{}, MaxOutbound: 2 * answer, CloseTimeout: time.Minute,
			Accept: func(*loop.Conn) loop.Handler {
				return script{
					message: func(c *loop.Conn, _ []byte) error {
						_, err := c.Write(make([]byte, answer))
						return err
					},
					close: func(_ *loop.Conn, err error) { reasons <- err },
				}
			},
		}
		c := dial(t, start(t, srv))
		_, _ = io.WriteString(c, "all of it\n")
		if err := c.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if n, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, slowReader{c}, make([]byte, 256<<10)); n != answer || err != nil {
			t.Errorf("%s: read %d of %d bytes, %v", addr, n, answer, err)
		}
		if err := <-reasons; err != io.EOF {
			t.Errorf("%s: reason %v", addr, err)
		}
	}
}

// slowReader reads in pieces and gives the server time to notice that the socket is full, and that the peer has ended.
type slowReader struct{ net.Conn }

func (r slowReader) Read(b []byte) (int, error) {
	<-time.After(time.Millisecond)
	return r.Conn.Read(b)
}
