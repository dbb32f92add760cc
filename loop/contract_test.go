package loop_test

import (
	"bufio"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/loop"
)

func TestEcho(t *testing.T) {
	addr := start(t, &loop.Server{
		Codec:  codec.Lines{},
		Accept: func(*loop.Conn) loop.Handler { return loop.HandlerFunc(echo) },
	})
	c := dial(t, addr)
	r := bufio.NewReader(c)
	for _, line := range []string{"hello\n", "\n", "bye\n"} {
		c.Write([]byte(line))
		if got, err := r.ReadString('\n'); got != line || err != nil {
			t.Fatalf("%q, %v; want %q", got, err, line)
		}
	}
}

type recorder struct {
	once   sync.Once
	closed chan error
}

func (*recorder) OnMessage(c *loop.Conn, msg []byte) error { return c.Send(msg) }
func (r *recorder) OnClose(_ *loop.Conn, err error)        { r.once.Do(func() { r.closed <- err }) }

func TestIdleEviction(t *testing.T) {
	rec := &recorder{closed: make(chan error, 1)}
	addr := start(t, &loop.Server{
		Accept:      func(*loop.Conn) loop.Handler { return rec },
		IdleTimeout: 50 * time.Millisecond,
	})
	dial(t, addr)
	if err := <-rec.closed; !errors.Is(err, loop.ErrIdle) {
		t.Fatal(err)
	}
}
