package loop_test

import (
	"context"
	"errors"
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/loop"
)

// MaxConnsPerIP is for who comes in: connections that were dialled to the same address neither
// count, nor make room when they end.
func TestDialedDoNotCountPerIP(t *testing.T) {
	bothEngines(t, func(t *testing.T, ctx context.Context) {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer ln.Close()
		srv := &loop.Server{Addr: "tcp://127.0.0.1:0", NumLoops: 1, MaxConnsPerIP: 2,
			Accept: func(*loop.Conn) loop.Handler { return loop.HandlerFunc(echo) }}
		startWith(t, ctx, srv)
		var out []*opening
		for range 5 {
			o := dialOn(t, loop.Dialer{}, srv.Loops()[0], "tcp://"+ln.Addr().String())
			if o.err != nil {
				t.Fatal(o.err)
			}
			out = append(out, o)
		}
		comeIn := func() (served bool) {
			c, err := net.Dial("tcp", srv.LocalAddr().String())
			if errors.Is(err, syscall.ECONNRESET) {
				return false
			}
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { c.Close() })
			c.SetDeadline(time.Now().Add(patience))
			c.Write([]byte("x"))
			_, err = io.ReadFull(c, make([]byte, 1))
			return err == nil
		}
		for i := range 2 {
			if !comeIn() {
				t.Errorf("connection %d was refused", i)
			}
		}
		for _, o := range out {
			o.tell(t, (*loop.Conn).Close)
			receive(t, o.closed, "the end")
		}
		if comeIn() {
			t.Error("a third connection of one address was served")
		}
	})
}
