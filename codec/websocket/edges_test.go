package websocket_test

import (
	"errors"
	"io"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gobwas/ws"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/codec/websocket"
	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/looptest"
)

// The largest integer works as "no limit".
func TestLargestLimits(t *testing.T) {
	const offer = "Sec-WebSocket-Extensions: permessage-deflate"
	long := strings.Repeat("loopwheel ", 100)
	for _, cfg := range []*websocket.Codec{
		{Compress: true, MaxMessage: math.MaxInt},
		{Compress: true, MaxMessage: 1 << 20, MaxFrame: math.MaxInt},
		{Compress: true, MaxMessage: math.MaxInt, MaxFrame: 1 << 20},
	} {
		c := opened(t, cfg, offer)
		for _, f := range []frame{text(long), {fin: true, rsv: 4, op: ws.OpText, payload: deflated(t, long)}} {
			_, got, err := c.Decode(f.wire())
			if string(got) != long || err != nil {
				t.Errorf("%d and %d: %d bytes, %v", cfg.MaxMessage, cfg.MaxFrame, len(got), err)
			}
		}
		for _, n := range []int64{math.MaxInt32 - 10, math.MaxInt32, math.MaxUint32, math.MaxInt64 - 10, math.MaxInt64} {
			head := frame{fin: true, op: ws.OpText, length: n}.wire()
			if size, ok := opened(t, cfg, offer).FrameSize(head); ok && size < len(head) {
				t.Errorf("a frame of %d bytes has %d", n, size)
			}
			if _, got, err := opened(t, cfg, offer).Decode(head); got != nil || err != nil && !errors.Is(err, codec.ErrTooLong) {
				t.Errorf("a frame of %d bytes: %q, %v", n, got, err)
			}
		}
	}
}

// Close closes a connection whose output has ended, too, though nobody can be told why.
func TestCloseBehindCloseWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := looptest.Start(t, &loop.Server{NumLoops: 1, Codec: &websocket.Codec{}, Accept: func(*loop.Conn) loop.Handler {
			return loop.HandlerFunc(func(c *loop.Conn, _ []byte) error {
				c.CloseWrite()
				websocket.Close(c, 4000, "enough")
				return nil
			})
		}}).Open()
		p.Send(request("x"), string(text("bye").wire()))
		testkit.Pass(websocket.CloseWait)
		e, ok := errors.AsType[*websocket.CloseError](p.Reason())
		if !ok || e.Code != 4000 || errors.Is(e, io.EOF) {
			t.Errorf("closed with %v", p.Reason())
		}
	})
}

// A message from another goroutine does not cut short the wait for the peer's close frame.
func TestSendWhileClosing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var conn *loop.Conn
		p := looptest.Start(t, &loop.Server{NumLoops: 1, Codec: &websocket.Codec{}, Accept: func(c *loop.Conn) loop.Handler {
			conn = c
			return loop.HandlerFunc(func(c *loop.Conn, _ []byte) error {
				websocket.Close(c, 4000, "enough")
				return nil
			})
		}}).Open()
		p.Send(request("x"), string(text("bye").wire()))
		testkit.Pass(time.Second)
		if err := conn.Ref().Send([]byte("late")); err != nil {
			t.Errorf("Ref.Send: %v, want nil", err)
		}
		testkit.Pass(websocket.CloseWait - 2*time.Second)
		if p.Reason() != nil {
			t.Errorf("it has closed with %v, want it to wait for the peer", p.Reason())
		}
		testkit.Pass(websocket.CloseWait)
		if e, ok := errors.AsType[*websocket.CloseError](p.Reason()); !ok || e.Code != 4000 {
			t.Errorf("closed with %v, want 4000", p.Reason())
		}
	})
}
