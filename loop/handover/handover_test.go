//go:build unix

package handover_test

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/codec/websocket"
	"github.com/loopwheel/loopwheel/handler"
	"github.com/loopwheel/loopwheel/internal/inside"
	"github.com/loopwheel/loopwheel/internal/rig"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/handover"
)

const patience = 20 * time.Second

// A counter answers each line with its number: an actor whose state has to move.
type counter struct {
	N      int
	Who    string
	ends   chan error
	refuse bool // Save fails
}

func (h *counter) OnMessage(c *loop.Conn, line []byte) error {
	h.N++
	return c.Send(fmt.Appendf(nil, "%s %d %s", h.Who, h.N, line))
}

func (h *counter) OnClose(_ *loop.Conn, err error) {
	if h.ends != nil {
		h.ends <- err
	}
}

func (h *counter) Save(*loop.Conn) ([]byte, error) {
	if h.refuse {
		return nil, errors.New("not now")
	}
	return json.Marshal(h)
}

// accept makes counters that say who serves them.
func accept(who string) loop.Accept {
	return func(c *loop.Conn) loop.Handler {
		h := &counter{}
		if state, moved := c.Saved(); moved {
			if err := json.Unmarshal(state, h); err != nil {
				return nil
			}
		}
		h.Who = who
		return h
	}
}

// start starts a server that takes over by path, and offers itself there. It ends with the test.
func start(t *testing.T, path string, srv *loop.Server, check func([]byte) error) handover.Report {
	t.Helper()
	srv.Logger = zerolog.Nop()
	ctx, end := context.WithCancel(t.Context())
	cfg := handover.Config{Path: path, Check: check, Patience: 50 * time.Millisecond}
	report, err := handover.Take(ctx, srv, cfg)
	if err != nil {
		t.Fatal(err)
	}
	offer, err := handover.Listen(srv, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = offer.Close()
		end()
		_ = srv.Wait()
	})
	return report
}

func lines(who string) *loop.Server {
	return &loop.Server{Addr: "tcp://127.0.0.1:0", Codec: codec.Lines{}, Accept: accept(who), NumLoops: 2}
}

// A client says numbered lines and reads the answers.
type client struct {
	t *testing.T
	net.Conn
	in *bufio.Reader
}

func dial(t *testing.T, srv *loop.Server) *client {
	t.Helper()
	c, err := net.Dial(srv.LocalAddr().Network(), srv.LocalAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(patience))
	return &client{t, c, bufio.NewReader(c)}
}

func (c *client) say(s string) {
	c.t.Helper()
	if _, err := io.WriteString(c, s); err != nil {
		c.t.Fatal(err)
	}
}

func (c *client) hears(want string) {
	c.t.Helper()
	if got, err := c.in.ReadString('\n'); err != nil || got != want+"\n" {
		c.t.Fatalf("heard %q, %v; want %q", got, err, want)
	}
}

// waitEnd waits until a server has ended.
func waitEnd(t *testing.T, srv *loop.Server) {
	t.Helper()
	ended := make(chan error, 1)
	go func() { ended <- srv.Wait() }()
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(patience):
		t.Fatal("the old server does not end")
	}
}

// Three servers, one after the other, serve the same connections, with their state, half a line,
// and at the same address.
func TestConnectionsGoOn(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	a := lines("a")
	if r := start(t, path, a, nil); r.Predecessor || r.Conns > 0 {
		t.Errorf("the first has taken over: %+v", r)
	}
	var clients []*client
	for range 100 {
		c := dial(t, a)
		c.say("one\nhal")
		c.hears("a 1 one")
		clients = append(clients, c)
	}
	old := a
	for n, who := range []string{"b", "c"} {
		next := lines(who)
		r := start(t, path, next, nil)
		r.LongestPause = 0
		if want := (handover.Report{Predecessor: true, Listeners: 1, Conns: 100}); !reflect.DeepEqual(r, want) {
			t.Errorf("%+v, want %+v", r, want)
		}
		if next.LocalAddr().String() != old.LocalAddr().String() {
			t.Errorf("the next one listens at %v", next.LocalAddr())
		}
		waitEnd(t, old)
		if st := old.Stats(); st.Conns != 0 || st.Cut != 0 {
			t.Errorf("the old one: %+v", st)
		}
		for _, c := range clients {
			c.say("f\nhal")
			c.hears(fmt.Sprintf("%s %d half", who, n+2))
		}
		c := dial(t, next)
		c.say("x\n")
		c.hears(who + " 1 x")
		c.Close()
		old = next
	}
}

// A connection that cannot move stays, and drains: when Save fails, and while an answer is due.
func TestWhatStays(t *testing.T) {
	type due func(c *loop.Conn) (finish func()) // called on the loop, both
	for name, owe := range map[string]due{
		"Save fails": nil,
		"a reply is due": func(c *loop.Conn) func() {
			r := handler.NewReplies(c, handler.RepliesConfig{}).Later()
			return func() { r.Done([]byte("late\n")) }
		},
		"a call is under way": func(c *loop.Conn) func() {
			calls := handler.NewCalls[string](c, handler.CallConfig{})
			id, _ := calls.Begin(0, func(a string, _ error) { _ = c.Send([]byte(a)) })
			return func() { calls.Answer(id, "late") }
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "s")
			ends, finish := make(chan error, 3), make(chan func(), 1)
			a := lines("a")
			var ref loop.Ref
			a.Accept = func(c *loop.Conn) loop.Handler {
				if ref = c.Ref(); owe != nil {
					finish <- owe(c)
				}
				return &counter{Who: "a", ends: ends, refuse: owe == nil}
			}
			start(t, path, a, nil)
			c := dial(t, a)
			c.say("one\n")
			c.hears("a 1 one")
			if r := start(t, path, lines("b"), nil); r.Conns != 0 || r.Stayed != 1 {
				t.Errorf("%d moved and %d stayed, want 0 and 1", r.Conns, r.Stayed)
			}
			if owe != nil {
				f := <-finish
				if err := ref.Tell(func(*loop.Conn) { f() }); err != nil {
					t.Errorf("it is not open any more: %v", err)
				}
				c.hears("late")
			}
			if err := <-ends; !errors.Is(err, loop.ErrServerClosed) {
				t.Errorf("it ends with %v, want ErrServerClosed", err)
			}
			if _, err := c.in.ReadByte(); err != io.EOF {
				t.Errorf("its peer reads %v, want EOF", err)
			}
		})
	}
}

// A state that the next process does not understand stays where it is understood, open, until that
// drains.
func TestCheck(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	a := lines("a")
	a.Hooks.OnDrain = func(c *loop.Conn) { _ = c.Send([]byte("bye")) }
	start(t, path, a, nil)
	c := dial(t, a)
	c.say("one\n")
	c.hears("a 1 one")
	if r := start(t, path, lines("b"), func([]byte) error { return errors.New("too old") }); r.Conns != 0 || r.Refused != 1 {
		t.Errorf("%+v", r)
	}
	c.hears("bye") // it is with the old process, which drains
}

// Output that the peer has not taken, and the end of the output, move.
func TestOutputMoves(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	const size = 8 << 20
	a := lines("a")
	a.Limits.MaxOutbound = 2 * size
	sent := make(chan struct{})
	a.Accept = func(c *loop.Conn) loop.Handler {
		_, _ = c.Write(append(make([]byte, size), '\n'))
		c.CloseWrite()
		close(sent)
		return accept("a")(c)
	}
	start(t, path, a, nil)
	c := dial(t, a)
	<-sent
	b := lines("b")
	b.Limits.MaxOutbound = 2 * size
	writes := make(chan error, 1)
	b.Accept = func(c *loop.Conn) loop.Handler {
		writes <- c.Send([]byte("more"))
		return accept("b")(c)
	}
	if r := start(t, path, b, nil); r.Conns != 1 {
		t.Fatalf("%+v", r)
	}
	if got, err := io.ReadAll(c.in); len(got) != size+1 || err != nil {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	if err := <-writes; !errors.Is(err, loop.ErrClosed) {
		t.Errorf("the output has ended, and Send returns %v", err)
	}
}

// An idle timeout goes on from where it was.
func TestIdleTimeGoesOn(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	a := lines("a")
	a.IdleTimeout = time.Hour
	start(t, path, a, nil)
	c := dial(t, a)
	c.say("one\n")
	c.hears("a 1 one")
	<-time.After(300 * time.Millisecond) // of real silence, which must count
	b := lines("b")
	b.IdleTimeout = time.Hour
	info := inside.Take[inside.ForMetrics[*loop.Conn, *loop.Loop]]().Info
	infos := make(chan inside.ConnInfo, 1)
	b.Accept = func(c *loop.Conn) loop.Handler {
		c.AfterFunc(0, func() { infos <- info(c) })
		return accept("b")(c)
	}
	start(t, path, b, nil)
	got := <-infos
	if ago := time.Since(got.LastRead); ago < 300*time.Millisecond {
		t.Errorf("the last byte came %v ago", ago)
	}
	if after := got.IdleDeadline.Sub(got.LastRead).Round(time.Second); after != time.Hour {
		t.Errorf("it is evicted %v after its last byte, and not an hour", after)
	}
}

// A peer that has ended its output before the move is heard to have done so after it.
func TestHalfCloseMoves(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	var eof = make(chan string, 1)
	hook := func(who string) loop.Accept {
		return func(c *loop.Conn) loop.Handler {
			c.OnEOF(func() {
				select {
				case eof <- who:
				default:
				}
				if who == "b" {
					_ = c.Send([]byte("goodbye"))
					c.Close()
				}
			})
			return accept(who)(c)
		}
	}
	a, b := lines("a"), lines("b")
	a.Accept, b.Accept = hook("a"), hook("b")
	start(t, path, a, nil)
	c := dial(t, a)
	c.say("one\n")
	c.hears("a 1 one")
	_ = c.Conn.(*net.TCPConn).CloseWrite()
	if who := <-eof; who != "a" {
		t.Fatal(who)
	}
	if r := start(t, path, b, nil); r.Conns != 1 {
		t.Fatalf("%+v", r)
	}
	if who := <-eof; who != "b" {
		t.Fatal(who)
	}
	c.hears("goodbye")
	if _, err := c.in.ReadByte(); err != io.EOF {
		t.Error(err)
	}
}

// Unix sockets move as well, and their file stays until the last server has ended.
func TestUnixAddress(t *testing.T) {
	dir := t.TempDir()
	path, addr := filepath.Join(dir, "s"), "unix://"+filepath.Join(dir, "a")
	a, b := lines("a"), lines("b")
	a.Addr, b.Addr = addr, addr
	start(t, path, a, nil)
	c := dial(t, a)
	c.say("one\n")
	c.hears("a 1 one")
	start(t, path, b, nil)
	waitEnd(t, a)
	c.say("two\n")
	c.hears("b 2 two")
	d := dial(t, b)
	d.say("new\n")
	d.hears("b 1 new")
}

// Connections move on every engine, and from one to another.
func TestEngines(t *testing.T) {
	engines := []loop.Engine{loop.EngineDefault, loop.EngineNet}
	if runtime.GOOS == "linux" {
		engines = append(engines, loop.EngineEpoll)
	}
	for _, from := range engines {
		for _, to := range engines {
			path := filepath.Join(t.TempDir(), "s")
			a, b := lines("a"), lines("b")
			a.Engine, b.Engine = from, to
			start(t, path, a, nil)
			c := dial(t, a)
			c.say("one\nhal")
			c.hears("a 1 one")
			if r := start(t, path, b, nil); r.Conns != 1 {
				t.Errorf("from %v to %v: %+v", from, to, r)
			}
			c.say("f\n")
			c.hears("b 2 half")
		}
	}
}

// A WebSocket moves between two fragments of a message.
func TestWebSocketMoves(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	a, b := lines("a"), lines("b")
	a.Codec, b.Codec = &websocket.Codec{}, &websocket.Codec{}
	start(t, path, a, nil)
	c := dial(t, a)
	c.say("GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n" +
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n")
	for line := ""; line != "\r\n"; {
		var err error
		if line, err = c.in.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
	}
	frame := func(first byte, text string) { c.say(string([]byte{first, 0x80 | byte(len(text)), 0, 0, 0, 0}) + text) }
	hears := func(want string) {
		t.Helper()
		got := make([]byte, 2+len(want))
		if _, err := io.ReadFull(c.in, got); err != nil || string(got[2:]) != want {
			t.Fatalf("%q, %v; want %q", got, err, want)
		}
	}
	frame(0x81, "hi")
	hears("a 1 hi")
	frame(0x01, "fragm") // not the last
	frame(0x89, "ping")
	hears("ping") // so the fragment has been read
	if r := start(t, path, b, nil); r.Conns != 1 {
		t.Fatalf("%+v", r)
	}
	frame(0x80, "ents")
	hears("b 2 fragments")
}

// A patience that is longer than the time to wait for a word does not end the handover.
func TestPatienceBeyondTimeout(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	a := lines("a")
	a.Accept = func(c *loop.Conn) loop.Handler { return &counter{Who: "a", refuse: true} }
	cfg := handover.Config{Path: path, Timeout: time.Second, Patience: 2 * time.Second}
	a.Logger = zerolog.Nop()
	if err := a.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	offer, err := handover.Listen(a, cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer offer.Close()
	c := dial(t, a)
	c.say("one\n")
	c.hears("a 1 one")
	b := lines("b")
	r, err := handover.Take(t.Context(), b, cfg)
	if err != nil || r.Stayed != 1 {
		t.Errorf("%+v, %v", r, err)
	}
	waitEnd(t, a)
}

// An old process that stops accepting and fails then ends all the same: the next one has no reason
// to end as well.
func TestOldFailsAtTheEnd(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: path})
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	life, ours, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer life.Close()
	defer ours.Close()
	for _, last := range []byte("RE") {
		said := make(chan error, 1)
		go func() {
			nc, err := ln.AcceptUnix()
			if err != nil {
				said <- err
				return
			}
			defer nc.Close()
			_, _, err = nc.WriteMsgUnix([]byte(message('P', "null")), syscall.UnixRights(int(life.Fd())), nil)
			_, _ = io.WriteString(nc, message('S', "null"))
			_, _ = io.ReadFull(nc, make([]byte, len(greeting)+len(message('S', "null"))))
			if last == 'R' {
				_, _ = io.WriteString(nc, message('R', "null"))
			}
			_, _ = ours.Write([]byte("X"))
			said <- err
		}()
		srv := lines("b")
		_, err := handover.Take(t.Context(), srv, handover.Config{Path: path})
		if gaveUp := errors.Is(err, handover.ErrTakenBack); gaveUp == (last == 'R') {
			t.Errorf("%c: %v", last, err)
		}
		if err := <-said; err != nil {
			t.Error(err)
		}
		c := dial(t, srv)
		c.say("one\n")
		c.hears("b 1 one")
	}
}

// message returns a message between two processes.
func message(kind byte, body string) string {
	return string(binary.BigEndian.AppendUint32([]byte{kind}, uint32(len(body)))) + body
}

var greeting = message('H', `{"Protocol":"loopwheel","Version":1}`)

// A process that is not one of ours, or of another version, is refused, and the server goes on.
func TestStrangers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	a := lines("a")
	start(t, path, a, nil)
	c := dial(t, a)
	for name, says := range map[string]string{
		"nothing":          "",
		"half a message":   "H\x00",
		"a huge length":    "H\xff\xff\xff\xff",
		"no JSON":          message('H', "hello"),
		"another protocol": message('H', `{"Protocol":"x","Version":1}`),
		"another version":  message('H', `{"Protocol":"loopwheel","Version":2}`),
		"no more":          greeting,
		"the wrong word":   greeting + message('A', "[]"),
		"no confirmation":  greeting + message('S', "null") + message('A', "{}"),
	} {
		stranger, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(name, err)
		}
		_, _ = io.WriteString(stranger, says)
		_ = stranger.(*net.UnixConn).CloseWrite()
		_ = stranger.SetDeadline(time.Now().Add(patience))
		_, _ = io.Copy(io.Discard, stranger) // until the server has given up
		stranger.Close()
		c.say(name + "\n")
		if line, err := c.in.ReadString('\n'); err != nil || !strings.HasSuffix(line, name+"\n") {
			t.Fatalf("after %s: %q, %v", name, line, err)
		}
	}
	b := lines("b")
	if r := start(t, path, b, nil); r.Conns+r.Stayed != 1 {
		t.Errorf("the right one gets %+v", r)
	}
}

// Whoever cannot start leaves the old server as it was.
func TestNextDoesNotStart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	a := lines("a")
	start(t, path, a, nil)
	c := dial(t, a)
	bad := lines("b")
	bad.OnStart = func(*loop.Loop) { panic("no database") }
	bad.Logger = zerolog.Nop()
	if _, err := handover.Take(t.Context(), bad, handover.Config{Path: path}); err == nil {
		t.Error("it has started")
	}
	c.say("one\n")
	c.hears("a 1 one")
	if r := start(t, path, lines("c"), nil); r.Conns != 1 {
		t.Errorf("%+v", r)
	}
	c.say("two\n")
	c.hears("c 2 two")
}

func TestMistakes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	if _, err := handover.Take(t.Context(), lines("a"), handover.Config{}); err == nil {
		t.Error("no path is no error")
	}
	udp := &loop.Server{Addr: "udp://127.0.0.1:0", Accept: accept("a")}
	if err := udp.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := handover.Listen(udp, handover.Config{Path: path}); err == nil || !strings.Contains(err.Error(), "UDP") {
		t.Errorf("UDP: %v", err)
	}
	if _, err := handover.Listen(lines("a"), handover.Config{Path: path}); err == nil {
		t.Error("a server that was not started can be handed over")
	}
}

// A client that a balancer's listener does not trust is not trusted after the move either.
func TestProxyHeaderAfterTheMove(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	servers := []*loop.Server{lines("a"), lines("b")}
	for _, srv := range servers {
		srv.ProxyProtocol = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	}
	start(t, path, servers[0], nil)
	c := dial(t, servers[0])
	other := dial(t, servers[0])
	other.say("one\n")
	other.hears("a 1 one")
	rig.HasConns(t, servers[0], 2)
	if r := start(t, path, servers[1], nil); r.Conns != 2 {
		t.Fatalf("%+v", r)
	}
	other.say("two\n")
	other.hears("b 2 two")
	c.say("PROXY TCP4 1.2.3.4 5.6.7.8 9 10\r\n")
	if got, err := io.ReadAll(c.in); len(got) > 0 {
		t.Errorf("it is answered %q, %v", got, err)
	}
}
