package looptest_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/internal/inside"
	"github.com/loopwheel/loopwheel/internal/rig"
	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/looptest"
)

// A scriptStep is what the peer of a connection does at once. When all that it causes has happened,
// the next step follows.
type scriptStep struct {
	lines []string // in one packet
	stops bool     // it does not read until they are sent
	then  string   // "", or how it ends: "half", "close" or "reset"
}

// newScript returns the steps of one connection. What a system may do in either order is not in
// one step: replies that come later are not where the connection ends.
func newScript(r *rand.Rand) (steps []scriptStep) {
	size := func() string { return strconv.Itoa([]int{0, 1, 1000, 70_000, 300_000}[r.IntN(5)]) }
	pick := func(verbs ...string) string { return verbs[r.IntN(len(verbs))] + " " + size() }
	says := func() (lines []string) {
		for range r.IntN(4) {
			lines = append(lines, pick("say", "say", "pause", "hold"))
		}
		return lines
	}
	steps = append(steps, scriptStep{lines: []string{pick("begin", "begin", "awaits-eof")}})
	for range r.IntN(6) {
		s := scriptStep{stops: r.IntN(3) == 0}
		for range 1 + r.IntN(4) {
			s.lines = append(s.lines, pick("say", "later", "tell", "job", "pause", "hold"))
		}
		steps = append(steps, s)
	}
	last := scriptStep{lines: says(), stops: r.IntN(3) == 0, then: []string{"half", "close", "reset"}[r.IntN(3)]}
	switch {
	case r.IntN(2) == 0: // the server ends it; what follows in the same packet is dropped
		last.then = ""
		last.lines = append(last.lines, pick("end", "fail", "panic"), "say 1", "say 1")
	case last.then == "close":
		last.lines = slices.DeleteFunc(last.lines, func(l string) bool { return !strings.HasPrefix(l, "say") })
	case last.then == "reset":
		last.lines = nil
	}
	return append(steps, last)
}

// A scriptTrace is what both ends of a connection have seen.
type scriptTrace struct {
	events   string       // of the handler, in their order
	received map[byte]int // bytes that the peer has read, by the verb that had them sent
	end      string       // what it has read after them
}

// A scriptHandler does what its lines say, and notes them.
type scriptHandler struct {
	mu     sync.Mutex
	events string
}

func (h *scriptHandler) note(event string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.events += event + "; "
}

func (h *scriptHandler) noted() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.events
}

var errScript = errors.New("the script says so")

func (h *scriptHandler) OnMessage(c *loop.Conn, msg []byte) error {
	h.note(string(msg))
	verb, size, _ := strings.Cut(string(msg), " ")
	n, err := strconv.Atoi(size)
	reply := func(c *loop.Conn) { _, _ = c.Write([]byte(strings.Repeat(verb[:1], n))) } // nobody may hear it
	const soon = 3 * time.Millisecond
	switch verb {
	case "begin":
	case "awaits-eof":
		c.OnEOF(func() { h.note("EOF"); reply(c); c.CloseWithError(io.EOF) })
	case "say":
		reply(c)
	case "later":
		c.AfterFunc(soon, func() { reply(c) })
	case "tell":
		err = c.Ref().Tell(reply)
	case "job":
		err = loop.Offload(c, func(context.Context) int { return n }, func(c *loop.Conn, _ int) { reply(c) })
	case "pause":
		c.PauseRead()
		c.AfterFunc(soon, c.ResumeRead)
	case "hold":
		hold := inside.Take[inside.ForHandler[*loop.Conn, *loop.Loop, loop.Ref, loop.Dialer]]().HoldRead
		hold(c, true)
		c.AfterFunc(soon, func() { hold(c, false) })
	case "end":
		reply(c)
		c.Close()
	case "fail":
		return errScript
	case "panic":
		panic("the script says so")
	default:
		err = fmt.Errorf("no such verb: %q", msg)
	}
	return err
}

func (h *scriptHandler) OnClose(_ *loop.Conn, err error) {
	var panicked *loop.PanicError
	switch {
	case errors.As(err, &panicked):
		err = errors.New("panic")
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		err = errors.New("reset")
	}
	h.note(fmt.Sprint("closed: ", err))
}

// scriptServer returns a server whose connections follow scripts, and gives their handlers away.
func scriptServer() (srv *loop.Server, accepted chan *scriptHandler) {
	accepted = make(chan *scriptHandler, 1)
	return &loop.Server{
		Addr: "tcp://127.0.0.1:0", NumLoops: 2, Codec: codec.Lines{}, Limits: loop.Limits{MaxOutbound: 16 << 20}, Logger: zerolog.Nop(),
		Accept: func(*loop.Conn) loop.Handler { h := new(scriptHandler); accepted <- h; return h },
	}, accepted
}

// A scriptPeer is the client's end of a connection.
type scriptPeer interface {
	stop()
	resume()
	send(packet string)
	end(how string)
	received() (bytes map[byte]int, end string)
}

// run has p do the steps. After each it calls settled, which returns when all has happened.
func run(p scriptPeer, steps []scriptStep, settled func(step int)) {
	for i, s := range steps {
		if s.stops {
			p.stop()
		}
		if len(s.lines) > 0 {
			p.send(strings.Join(s.lines, "\n") + "\n")
		}
		if s.stops {
			p.resume()
		}
		if s.then != "" {
			p.end(s.then)
		}
		settled(i)
	}
}

// count adds bytes to those that have come.
func count(received map[byte]int, b []byte) {
	for _, letter := range b {
		received[letter]++
	}
}

// memoryPeer is a scriptPeer of looptest.
type memoryPeer struct {
	*looptest.Peer
	got  map[byte]int
	over bool // it has ended the connection itself
}

func (p *memoryPeer) stop()              { p.Block(1000) }
func (p *memoryPeer) resume()            { p.Unblock() }
func (p *memoryPeer) send(packet string) { p.Send(packet) }

func (p *memoryPeer) end(how string) {
	p.over = how != "half"
	map[string]func(){"half": p.CloseWrite, "close": p.Close, "reset": p.Reset}[how]()
}

func (p *memoryPeer) received() (bytes map[byte]int, end string) {
	if p.over {
		return nil, ""
	}
	count(p.got, []byte(p.Received()))
	switch {
	case p.WasReset():
		return p.got, "reset"
	case p.Closed():
		return p.got, "EOF"
	}
	return p.got, ""
}

// systemPeer is a scriptPeer with a socket.
type systemPeer struct {
	*net.TCPConn
	stopped sync.Mutex // locked while it does not read

	mu   sync.Mutex
	got  map[byte]int
	over bool
	last string
}

func (p *systemPeer) read() {
	for buf := make([]byte, 64<<10); ; {
		p.stopped.Lock()
		//lint:ignore SA2001 what matters is the wait
		p.stopped.Unlock()
		n, err := p.Read(buf)
		p.mu.Lock()
		count(p.got, buf[:n])
		if err == io.EOF {
			p.last = "EOF"
		} else if err != nil {
			p.last = "reset"
		}
		p.mu.Unlock()
		if err != nil {
			return
		}
	}
}

func (p *systemPeer) stop()              { p.stopped.Lock() }
func (p *systemPeer) resume()            { p.stopped.Unlock() }
func (p *systemPeer) send(packet string) { _, _ = p.Write([]byte(packet)) }

func (p *systemPeer) end(how string) {
	p.mu.Lock()
	p.over = how != "half"
	p.mu.Unlock()
	switch how {
	case "half":
		_ = p.CloseWrite()
	case "reset":
		_ = p.SetLinger(0)
		_ = p.Close()
	default:
		_ = p.Close()
	}
}

func (p *systemPeer) received() (bytes map[byte]int, end string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over {
		return nil, ""
	}
	return maps.Clone(p.got), p.last
}

// inMemory returns what each step of a script leads to in looptest.
func inMemory(t *testing.T, steps []scriptStep) (traces []scriptTrace) {
	synctest.Test(t, func(t *testing.T) {
		s, accepted := scriptServer()
		srv := looptest.Start(t, s)
		p := &memoryPeer{Peer: srv.Open(), got: make(map[byte]int)}
		h := <-accepted
		run(p, steps, func(int) {
			srv.Sleep(time.Second)
			received, end := p.received()
			traces = append(traces, scriptTrace{h.noted(), maps.Clone(received), end})
		})
	})
	return traces
}

// sameEnds returns a trace without what a system may do in either order: when the peer has closed
// altogether, replies may meet a reset before its end is read.
func (tr scriptTrace) sameEnds(last scriptStep) scriptTrace {
	if last.then == "close" {
		tr.events = strings.Replace(tr.events, "closed: reset", "closed: EOF", 1)
		tr.events = strings.Replace(tr.events, "EOF; closed", "closed", 1)
	}
	return tr
}

// Random scripts of a connection have the same effects in memory and on each engine.
func TestScripts(t *testing.T) {
	rig.NeedPlain(t, "a close and a reset of TLS are others")
	first, scripts := testkit.Seed(t, 1), uint64(40)
	if os.Getenv("LOOPWHEEL_SLOW") != "" {
		scripts = 1000
	}
	for name, e := range map[string]loop.Engine{"gnet": loop.EngineGnet, "epoll": loop.EngineEpoll, "net": loop.EngineNet} {
		t.Run(name, func(t *testing.T) {
			srv, accepted := scriptServer()
			srv.Engine = e
			addr := rig.Start(t, srv)
			var accepting sync.Mutex // one at a time, so that the handler is the peer's
			t.Run("seed", func(t *testing.T) {
				for seed := first; seed < first+scripts; seed++ {
					t.Run(fmt.Sprint(seed), func(t *testing.T) {
						t.Parallel()
						steps := newScript(rand.New(rand.NewPCG(seed, 1)))
						want := inMemory(t, steps)
						accepting.Lock()
						c := rig.TCP(rig.Dial(t, addr))
						h := testkit.Receive(t, "the connection is accepted", accepted)
						accepting.Unlock()
						onSystem(t, c, h, steps, want)
					})
				}
			})
		})
	}
}

// onSystem compares what a script leads to with what it should.
func onSystem(t *testing.T, c *net.TCPConn, h *scriptHandler, steps []scriptStep, want []scriptTrace) {
	p := &systemPeer{TCPConn: c, got: make(map[byte]int)}
	go p.read()
	run(p, steps, func(i int) {
		var got scriptTrace
		want := want[i].sameEnds(steps[i])
		defer func() {
			if t.Failed() {
				t.Logf("step %d of %+v:\n got %+v\nwant %+v", i, steps, got, want)
			}
		}()
		testkit.EventuallyIn(t, 20*time.Second, "the trace is that of memory", func() bool {
			received, end := p.received()
			got = scriptTrace{h.noted(), received, end}.sameEnds(steps[i])
			return got.events == want.events && maps.Equal(got.received, want.received) && got.end == want.end
		})
	})
}
