package websocket_test

import (
	"errors"
	"io"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/codec/websocket"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/looptest"
)

// impatient serves with a time for messages.
func impatient(t *testing.T, timeout time.Duration) *server {
	t.Helper()
	s := &server{reasons: make(chan error, 1000)}
	s.Server = &loop.Server{
		Addr: "tcp://127.0.0.1:0", NumLoops: 1, Codec: &websocket.Codec{}, Timeouts: loop.Timeouts{Frame: timeout},
		Accept: func(*loop.Conn) loop.Handler { return echo{s.reasons} },
	}
	serveUntilEnd(t, s.Server)
	return s
}

// A peer that never ends its message is closed, whatever it sends meanwhile.
func TestMessageWithoutEnd(t *testing.T) {
	for name, flood := range map[string]frame{
		"silence": {}, "empty fragments": more(""), "fragments": more("x"), "pongs": pong("x"), "pings": ping("x"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := impatient(t, 200*time.Millisecond)
			c := s.open(t)
			c.write(t, string(begin("begun").wire()))
			ended := make(chan struct{})
			go func() { // it reads: who does not is another matter
				defer close(ended)
				_, _ = io.Copy(io.Discard, c.in)
			}()
			if name != "silence" {
				wire := []byte(strings.Repeat(string(flood.wire()), 10))
				pace := time.NewTicker(20 * time.Millisecond) // half of the pings, pongs and empty fragments that are allowed
				defer pace.Stop()
				for {
					if flood.op.IsControl() || flood.payload == "" {
						<-pace.C
					}
					if _, err := c.Write(wire); err != nil {
						break
					}
				}
			}
			err := s.reason(t)
			tooMany := name == "fragments" && errors.Is(err, codec.ErrTooLong)
			if !errors.Is(err, loop.ErrSlowFrame) && !tooMany {
				t.Errorf("closed with %v", err)
			}
			<-ended
		})
	}
}

// What the fragments take is given back with the message, and not only when the next one comes.
func TestFragmentsAreGivenBack(t *testing.T) {
	const conns, size = 16, 1 << 20
	cfg := &websocket.Codec{MaxMessage: size, Binary: true}
	held := make([]connCodec, conns)
	before := heap()
	for i := range held {
		c := opened(t, cfg)
		held[i] = c
		for _, f := range []frame{{op: 2, payload: strings.Repeat("x", size/2)}, last(strings.Repeat("y", size/2))} {
			_, msg, err := c.Decode(f.wire())
			if err != nil || f.fin && len(msg) != size {
				t.Fatal(len(msg), err)
			}
			n, unfinished := c.Unfinished()
			if unfinished == f.fin || unfinished && n != size/2 || f.fin && n != 0 {
				t.Fatalf("%d bytes, unfinished %t", n, unfinished)
			}
		}
	}
	if grown := int64(heap() - before); grown > conns*size/4 {
		t.Errorf("%d connections with nothing to assemble hold %d bytes", conns, grown)
	}
	runtime.KeepAlive(held)
}

func heap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// While a connection waits for the peer's close frame, the peer ends what it has begun, and may
// begin more: nothing of it is held, and it is no violation.
func TestFragmentsAfterClose(t *testing.T) {
	s := start(t, &websocket.Codec{})
	for name, between := range map[string][]frame{
		"a message in fragments": {begin("x"), more("y"), last("z")},
		"two of them":            {begin("x"), last("y"), begin("x"), ping(""), last("z")},
		"whole ones":             {text("x"), text("y")},
		"an unfinished one":      {begin("x")},
	} {
		t.Run(name, func(t *testing.T) {
			c := s.open(t)
			c.write(t, string(text("please close and wait").wire()))
			if got := c.next(); got != `close 4002 "waiting"` {
				t.Fatal(got)
			}
			for _, f := range append(between, closing(4002, "")) {
				c.write(t, string(f.wire()))
			}
			var e *websocket.CloseError
			if err := s.reason(t); !errors.As(err, &e) || e.Err != nil || e.Code != 4002 {
				t.Errorf("closed with %v", err)
			}
		})
	}
}

// Fragments that have begun before our close frame end after it. They are not waited for.
func TestFragmentsAroundClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := looptest.Start(t, &loop.Server{
			NumLoops: 1, Codec: &websocket.Codec{}, Timeouts: loop.Timeouts{Frame: time.Second},
			Accept: func(*loop.Conn) loop.Handler { return echo{} },
		})
		p, never := srv.Open(), srv.Open()
		for _, p := range []*looptest.Peer{p, never} {
			p.Send(request("x"), string(begin("x").wire()))
		}
		srv.Do(0, func(l *loop.Loop) {
			for c := range l.Conns() {
				if n, ok := c.Codec().(codec.Assembler).Unfinished(); n != 1 || !ok {
					t.Errorf("Unfinished is %d, %t", n, ok)
				}
				websocket.Close(c, 4002, "waiting")
				if n, ok := c.Codec().(codec.Assembler).Unfinished(); n != 0 || ok {
					t.Errorf("after our close frame Unfinished is %d, %t", n, ok)
				}
			}
		})
		srv.Sleep(2 * time.Second)
		for _, f := range []frame{more("y"), last("z"), text("whole"), begin("x"), last("y"), closing(4002, "")} {
			p.Send(string(f.wire()))
		}
		srv.Sleep(websocket.CloseWait)
		for _, p := range []*looptest.Peer{p, never} {
			var e *websocket.CloseError
			if err := p.Reason(); !errors.As(err, &e) || e.Err != nil || e.Code != 4002 {
				t.Errorf("closed with %v", err)
			}
		}
	})
}
