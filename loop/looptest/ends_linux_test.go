package looptest_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/internal/rig"
	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/looptest"
)

// An endStep is what a peer that does not read by itself does, and what the handler has noted when
// all that it causes has happened.
type endStep struct{ do, want string }

// endings are ways of a peer to end, each a list of steps.
var endings = map[string][]endStep{
	"a close": {{"send echo", "echo"}, {"read", "echo"}, {"close", "echo EOF"}},
	"a close with output that was not read": {
		{"send echo", "echo"}, {"read 1", "echo"}, {"close", "echo reset"},
	},
	"a close with output that its system has not taken": {
		{"send much", "much"}, {"read 1", "much"}, {"close", "much reset"},
	},
	"a half-close, a close": {
		{"send eof", "eof"}, {"half", "eof half"}, {"close", "eof half"}, {"poke", "eof half reset"},
	},
	"a half-close, a reset": {
		{"send eof", "eof"}, {"half", "eof half"}, {"reset", "eof half"}, {"poke", "eof half reset"},
	},
	"a half-close, a close with output that was not read": {
		{"send eof\necho", "eof echo"}, {"read 1", "eof echo"}, {"half", "eof echo half"}, {"close", "eof echo half"}, {"poke", "eof echo half reset"},
	},
	"a half-close, a close while output waits": {
		{"send eof\nmuch", "eof much"}, {"read 1", "eof much"}, {"half", "eof much half"}, {"close", "eof much half reset"},
	},
	"a half-close, a reset while output waits": {
		{"send eof\nmuch", "eof much"}, {"read 1", "eof much"}, {"half", "eof much half"}, {"reset", "eof much half reset"},
	},
	"a half-close and a reset while paused": {
		{"send pause", "pause"}, {"half", "pause"}, {"reset", "pause"}, {"poke", "pause reset"},
	},
	"a half-close and a reset while paused, then resumed": {
		{"send pause", "pause"}, {"half", "pause"}, {"reset", "pause"}, {"resume", "pause EOF"},
	},
	"a half-close and a close while paused": {
		{"send pause", "pause"}, {"half", "pause"}, {"close", "pause"}, {"poke", "pause reset"},
	},
}

// An endHandler notes what its lines say, and how it ends.
type endHandler struct {
	ref loop.Ref

	mu     sync.Mutex
	events []string
}

func (h *endHandler) note(event string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.events = append(h.events, event)
}

func (h *endHandler) noted() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return strings.Join(h.events, " ")
}

func (h *endHandler) OnMessage(c *loop.Conn, msg []byte) error {
	defer h.note(string(msg))
	switch string(msg) {
	case "echo":
		return c.Send(msg)
	case "much":
		for range 400 {
			if err := c.Send(make([]byte, 60<<10)); err != nil {
				return err
			}
		}
	case "eof":
		c.OnEOF(func() { h.note("half") })
	case "pause":
		c.PauseRead()
	}
	return nil
}

func (h *endHandler) OnClose(_ *loop.Conn, err error) {
	switch {
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		h.note("reset")
	default:
		h.note(fmt.Sprint(err))
	}
}

// poke sends something, if the connection is open.
func (h *endHandler) poke() {
	_ = h.ref.Tell(func(c *loop.Conn) { _ = c.Send([]byte("poke")) })
}

func (h *endHandler) resume() { _ = h.ref.Tell((*loop.Conn).ResumeRead) }

func endServer() (srv *loop.Server, accepted chan *endHandler) {
	accepted = make(chan *endHandler, 1)
	return &loop.Server{
		Codec: codec.Lines{}, Limits: loop.Limits{MaxOutbound: 64 << 20}, Logger: zerolog.Nop(),
		Accept: func(c *loop.Conn) loop.Handler { h := &endHandler{ref: c.Ref()}; accepted <- h; return h },
	}, accepted
}

// TestEndings: a peer's end has the same effects in memory and on each engine.
func TestEndings(t *testing.T) {
	rig.NeedPlain(t, "a close and a reset of TLS are others")
	for name, steps := range endings {
		t.Run("memory/"+name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { endInMemory(t, steps) })
		})
		for engine, e := range map[string]loop.Engine{"gnet": loop.EngineGnet, "epoll": loop.EngineEpoll, "net": loop.EngineNet} {
			t.Run(engine+"/"+name, func(t *testing.T) {
				t.Parallel()
				endOnSystem(t, e, steps)
			})
		}
	}
}

func endInMemory(t *testing.T, steps []endStep) {
	s, accepted := endServer()
	srv := looptest.Start(t, s)
	p := srv.Open()
	h := <-accepted
	p.Block(64 << 10)
	for _, step := range steps {
		switch verb, arg, _ := strings.Cut(step.do, " "); verb {
		case "send":
			p.Send(arg + "\n")
			p.Ack(64 << 10)
		case "read":
			if arg == "" {
				arg = "echo\n"
			}
			p.Take(len(arg))
		case "half":
			p.CloseWrite()
		case "close":
			p.Close()
		case "reset":
			p.Reset()
		case "resume":
			h.resume()
		case "poke":
			for range 3 {
				h.poke()
				srv.Sleep(time.Second)
			}
		}
		srv.Sleep(time.Second)
		if got := h.noted(); got != step.want {
			t.Fatalf("after %q: got %q, want %q", step.do, got, step.want)
		}
	}
}

func endOnSystem(t *testing.T, e loop.Engine, steps []endStep) {
	s, accepted := endServer()
	s.Engine = e
	p := rig.TCP(rig.Dial(t, rig.Start(t, s)))
	h := testkit.Receive(t, "the connection is accepted", accepted)
	for _, step := range steps {
		do := func() {}
		switch verb, arg, _ := strings.Cut(step.do, " "); verb {
		case "send":
			_, _ = p.Write([]byte(arg + "\n"))
		case "read":
			readOnSystem(t, p, arg)
		case "half":
			_ = p.CloseWrite()
		case "reset":
			_ = p.SetLinger(0)
			_ = p.Close()
		case "close":
			_ = p.Close()
		case "resume":
			h.resume()
		case "poke":
			do = h.poke
		}
		got := ""
		defer func() {
			if t.Failed() {
				t.Logf("after %q: got %q, want %q", step.do, got, step.want)
			}
		}()
		testkit.Eventually(t, "what the handler has noted", func() bool {
			do()
			got = h.noted()
			return got == step.want
		})
	}
}

func readOnSystem(t *testing.T, p net.Conn, arg string) {
	n := len("echo\n")
	if arg == "1" {
		n = 1
	}
	if _, err := io.ReadFull(p, make([]byte, n)); err != nil {
		t.Fatal(err)
	}
}
