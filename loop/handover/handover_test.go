//go:build unix

package handover_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/codec/websocket"
	"github.com/loopwheel/loopwheel/handler"
	"github.com/loopwheel/loopwheel/internal/inside"
	"github.com/loopwheel/loopwheel/internal/rig"
	"github.com/loopwheel/loopwheel/internal/testkit"
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

// A node is a process's part, or what would be one: several live in one process here.
type node struct {
	*handover.Handover
	ended  chan error // of Run
	report handover.Report
}

// start starts a server that takes over by path. It ends with the test.
func start(t *testing.T, path string, srv *loop.Server) handover.Report {
	t.Helper()
	n, err := open(t, srv, handover.Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	return n.report
}

// open opens and runs a server, and returns when it is in charge, or with the error of Run.
func open(t *testing.T, srv *loop.Server, cfg handover.Config) (*node, error) {
	t.Helper()
	srv.Logger = zerolog.Nop()
	if cfg.Patience == 0 {
		cfg.Patience = 50 * time.Millisecond
	}
	reports := make(chan handover.Report, 1)
	cfg.Report = func(r handover.Report) { reports <- r }
	h, err := handover.Open(t.Context(), srv, cfg)
	if err != nil {
		return nil, err
	}
	n := &node{Handover: h, ended: make(chan error, 1)}
	ctx, end := context.WithCancel(t.Context())
	go func() { n.ended <- h.Run(ctx) }()
	t.Cleanup(func() {
		end()
		_ = h.Close()
	})
	select {
	case n.report = <-reports:
		return n, nil
	case err := <-n.ended:
		return nil, err
	}
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
	return dialAddr(t, srv.LocalAddr())
}

func dialAddr(t *testing.T, addr net.Addr) *client {
	t.Helper()
	c, err := net.Dial(addr.Network(), addr.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(patience))
	return &client{t, c, bufio.NewReader(c)}
}

// secure begins TLS.
func (c *client) secure() {
	nc := tls.Client(c.Conn, &tls.Config{InsecureSkipVerify: true})
	c.Conn = nc
	c.in.Reset(nc)
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
	if r := start(t, path, a); !reflect.DeepEqual(r, handover.Report{}) {
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
		r := start(t, path, next)
		r.Longest = 0
		if want := (handover.Report{Predecessor: os.Getpid(), Moved: 100, Stayed: map[string]int{}}); !reflect.DeepEqual(r, want) {
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
			start(t, path, a)
			c := dial(t, a)
			c.say("one\n")
			c.hears("a 1 one")
			if r := start(t, path, lines("b")); r.Moved != 0 || len(r.Stayed) != 1 {
				t.Errorf("%d moved and %v stayed, want 0 and one", r.Moved, r.Stayed)
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

// Output that the peer has not taken, and the end of the output, move.
func TestOutputMoves(t *testing.T) {
	for engine, e := range engines() {
		t.Run(engine, func(t *testing.T) { outputMoves(t, e) })
	}
}

func outputMoves(t *testing.T, engine loop.Engine) {
	path := filepath.Join(t.TempDir(), "s")
	const size = 8 << 20
	a := lines("a")
	a.Engine = engine
	a.Limits.MaxOutbound = 2 * size
	sent := make(chan struct{})
	a.Accept = func(c *loop.Conn) loop.Handler {
		_, _ = c.Write(append(make([]byte, size), '\n'))
		c.CloseWrite()
		close(sent)
		return accept("a")(c)
	}
	start(t, path, a)
	c := dial(t, a)
	<-sent
	b := lines("b")
	b.Engine, b.Limits.MaxOutbound = engine, 2*size
	writes := make(chan error, 2) // the rehearsal's, too
	b.Accept = func(c *loop.Conn) loop.Handler {
		writes <- c.Send([]byte("more"))
		return accept("b")(c)
	}
	stays := engine == loop.EngineNet // as a goroutine of the old process writes it
	if r := start(t, path, b); r.Moved != map[bool]int{false: 1}[stays] || (r.Stayed["output waits"] == 1) != stays {
		t.Fatalf("%+v", r)
	}
	if got, err := io.ReadAll(c.in); len(got) != size+1 || err != nil {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	if err := <-writes; !errors.Is(err, loop.ErrClosed) { // of the rehearsal, at least
		t.Errorf("the output has ended, and Send returns %v", err)
	}
}

// An idle timeout goes on from where it was.
func TestIdleTimeGoesOn(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	a := lines("a")
	a.IdleTimeout = time.Hour
	start(t, path, a)
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
	start(t, path, b)
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
	start(t, path, a)
	c := dial(t, a)
	c.say("one\n")
	c.hears("a 1 one")
	_ = c.Conn.(*net.TCPConn).CloseWrite()
	if who := <-eof; who != "a" {
		t.Fatal(who)
	}
	if r := start(t, path, b); r.Moved != 1 {
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
	start(t, path, a)
	c := dial(t, a)
	c.say("one\n")
	c.hears("a 1 one")
	start(t, path, b)
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
			start(t, path, a)
			c := dial(t, a)
			c.say("one\nhal")
			c.hears("a 1 one")
			if r := start(t, path, b); r.Moved != 1 {
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
	start(t, path, a)
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
	if r := start(t, path, b); r.Moved != 1 {
		t.Fatalf("%+v", r)
	}
	frame(0x80, "ents")
	hears("b 2 fragments")
}

// A client that a balancer's listener does not trust is not trusted after the move either.
func TestProxyHeaderAfterTheMove(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	servers := []*loop.Server{lines("a"), lines("b")}
	for _, srv := range servers {
		srv.ProxyProtocol = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	}
	start(t, path, servers[0])
	c := dial(t, servers[0])
	other := dial(t, servers[0])
	other.say("one\n")
	other.hears("a 1 one")
	rig.HasConns(t, servers[0], 2)
	if r := start(t, path, servers[1]); r.Moved != 2 {
		t.Fatalf("%+v", r)
	}
	other.say("two\n")
	other.hears("b 2 two")
	c.say("PROXY TCP4 1.2.3.4 5.6.7.8 9 10\r\n")
	if got, err := io.ReadAll(c.in); len(got) > 0 {
		t.Errorf("it is answered %q, %v", got, err)
	}
}

// What Accept does with a connection that is to move, in the next process.
func TestRefusals(t *testing.T) {
	refuseOdd := func(how func(c *loop.Conn) loop.Handler) func() loop.Accept {
		return func() loop.Accept {
			var n atomic.Int32
			return func(c *loop.Conn) loop.Handler {
				if _, moved := c.Saved(); moved && n.Add(1)%2 == 1 {
					return how(c)
				}
				return accept("b")(c)
			}
		}
	}
	isNil := func(*loop.Conn) loop.Handler { return nil }
	panics := func(*loop.Conn) loop.Handler { panic("Accept") }
	for name, row := range map[string]struct {
		accept func() loop.Accept
		fails  bool // none is taken
	}{
		"nil for each second":     {accept: refuseOdd(isNil)},
		"a panic for each second": {accept: refuseOdd(panics)},
		"nil for all":             {accept: func() loop.Accept { return isNil }, fails: true},
		"a panic for all":         {accept: func() loop.Accept { return panics }, fails: true},
		"a codec that cannot take its state": {accept: func() loop.Accept {
			return func(c *loop.Conn) loop.Handler {
				c.SetCodec(refusingCodec{})
				return accept("b")(c)
			}
		}, fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "s")
			a, b := lines("a"), lines("b")
			a.Codec, b.Codec = statefulCodec{}, statefulCodec{}
			a.Drain.Delay = patience // what stays is served on
			b.Accept = row.accept()
			start(t, path, a)
			var clients []*client
			for range 40 {
				c := dial(t, a)
				c.say("one\nhal")
				c.hears("a 1 one")
				clients = append(clients, c)
			}
			n, err := open(t, b, handover.Config{Path: path})
			if (err != nil) != row.fails {
				t.Fatalf("the next process fails with %v, want a failure: %v", err, row.fails)
			}
			served := map[string]int{}
			for _, c := range clients {
				c.say("f\n")
				line, err := c.in.ReadString('\n')
				if err != nil || line[1:] != " 2 half\n" {
					t.Fatalf("got %q, %v", line, err)
				}
				served[line[:1]]++
			}
			if row.fails {
				if served["a"] != 40 {
					t.Errorf("%v serve, want all with a", served)
				}
				if r := start(t, path, lines2("c")); r.Moved != 40 {
					t.Errorf("after the failure %d connections move, want 40", r.Moved)
				}
				return
			}
			if n.report.Moved != served["b"] || n.report.Stayed["refused"] != served["a"] || served["a"] == 0 || served["b"] == 0 {
				t.Errorf("served %v, reported %+v", served, n.report)
			}
		})
	}
}

func lines2(who string) *loop.Server {
	srv := lines(who)
	srv.Codec = statefulCodec{}
	return srv
}

// statefulCodec is codec.Lines with a state.
type statefulCodec struct{ codec.Lines }

func (statefulCodec) New() codec.Codec { return &savingCodec{} }

type savingCodec struct{ codec.Lines }

func (*savingCodec) Save() ([]byte, error) { return []byte("state"), nil }
func (*savingCodec) Restore(s []byte) error {
	if string(s) != "state" {
		return errors.New("not my state")
	}
	return nil
}

type refusingCodec struct{ codec.Lines }

func (refusingCodec) New() codec.Codec { return &refuses{} }

type refuses struct{ savingCodec }

func (*refuses) Restore([]byte) error { return errors.New("a version that is too old") }

// Limits that the next process has do not close what moves, which counts.
func TestLimitsDoNotCut(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	a, b := lines("a"), lines("b")
	b.Limits.MaxConns, b.Limits.MaxConnsPerIP = 5, 5
	start(t, path, a)
	var clients []*client
	for range 20 {
		c := dial(t, a)
		c.say("one\n")
		c.hears("a 1 one")
		clients = append(clients, c)
	}
	if r := start(t, path, b); r.Moved != 20 {
		t.Errorf("%d moved, want 20", r.Moved)
	}
	for _, c := range clients {
		c.say("two\n")
		c.hears("b 2 two")
	}
	refused := testkit.Dial(t, net.Dialer{}, "tcp", b.LocalAddr().String())
	if _, err := refused.Read(make([]byte, 1)); err == nil {
		t.Error("a newcomer above the limit is served")
	}
	if st := b.Stats(); st.MovedIn != 20 || st.Accepted != 1 || st.ClosedBy["moved"] != 0 { // nor the rehearsal's
		t.Errorf("moved in %d, accepted %d, closed %v; want 20, 1, and none moved", st.MovedIn, st.Accepted, st.ClosedBy)
	}
	testkit.Eventually(t, "the old one counts 20 as moved", func() bool { return a.Stats().ClosedBy["moved"] == 20 })
}

// A notebook is a State.
type notebook struct {
	notes   []string
	frozen  atomic.Int32
	thawed  atomic.Int32
	failing error
}

func (n *notebook) Freeze() error          { n.frozen.Add(1); return n.failing }
func (n *notebook) Thaw()                  { n.thawed.Add(1) }
func (n *notebook) Save(w io.Writer) error { return json.NewEncoder(w).Encode(n.notes) }
func (n *notebook) Restore(r io.Reader) error {
	return errors.Join(n.failing, json.NewDecoder(r).Decode(&n.notes))
}

// A State moves with all connections, before the first Accept, or nothing does.
func TestState(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	a := lines("a")
	notes := &notebook{notes: []string{"x", strings.Repeat("y", 1<<20)}}
	if _, err := open(t, a, handover.Config{Path: path, State: notes}); err != nil {
		t.Fatal(err)
	}
	var clients []*client
	for range 50 {
		c := dial(t, a)
		c.say("one\nhal")
		c.hears("a 1 one")
		clients = append(clients, c)
	}
	for i, bad := range []*notebook{{failing: errors.New("another version")}, nil} {
		cfg := handover.Config{Path: path}
		if bad != nil {
			cfg.State = bad
		}
		if _, err := open(t, lines("b"), cfg); err == nil || !strings.Contains(err.Error(), "State") {
			t.Errorf("a State that is not restored: %v", err)
		}
		testkit.Eventually(t, fmt.Sprintf("the State is thawed %d times", i+1), func() bool { return int(notes.thawed.Load()) == i+1 })
		if n := int(notes.frozen.Load()); n != i+1 {
			t.Errorf("frozen %d times, want %d", n, i+1)
		}
	}
	for _, c := range clients {
		c.say("f\nhal")
		c.hears("a 2 half")
	}
	var got notebook
	b := lines("b")
	b.Accept = func(c *loop.Conn) loop.Handler {
		if len(got.notes) != 2 {
			t.Errorf("Accept comes before Restore: %d notes", len(got.notes))
		}
		return accept("b")(c)
	}
	n, err := open(t, b, handover.Config{Path: path, State: &got})
	if err != nil {
		t.Fatal(err)
	}
	if n.report.Moved != 50 || !reflect.DeepEqual(got.notes, notes.notes) {
		t.Errorf("%d moved, and the notes are of %d", n.report.Moved, len(got.notes))
	}
	for _, c := range clients {
		c.say("f\n")
		c.hears("b 3 half")
	}
}

// TLS 1.3 moves, with what the handshake has settled; TLS 1.2 stays, and so does a handshake.
func TestTLS(t *testing.T) {
	cert := testkit.Certificate("localhost")
	for _, version := range []uint16{tls.VersionTLS13, tls.VersionTLS12} {
		t.Run(tls.VersionName(version), func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "s")
			servers := []*loop.Server{lines("a"), lines("b"), lines("c")}
			names := make(chan string, 100)
			for i, srv := range servers {
				srv.TLS = &tls.Config{Certificates: []tls.Certificate{cert}}
				srv.Drain.Delay = patience
				srv.Accept = func(c *loop.Conn) loop.Handler {
					state, _ := c.TLS()
					names <- state.ServerName
					return accept(string(rune('a' + i)))(c)
				}
			}
			start(t, path, servers[0])
			var clients []*client
			for range 20 {
				nc, err := tls.Dial("tcp", servers[0].LocalAddr().String(),
					&tls.Config{InsecureSkipVerify: true, ServerName: "localhost", MaxVersion: version})
				if err != nil {
					t.Fatal(err)
				}
				defer nc.Close()
				_ = nc.SetDeadline(time.Now().Add(patience))
				c := &client{t, nc, bufio.NewReader(nc)}
				c.say("one\nhal")
				c.hears("a 1 one")
				clients = append(clients, c)
			}
			who, moves := []string{"a", "a"}, 0
			if version == tls.VersionTLS13 {
				who, moves = []string{"b", "c"}, 20
			}
			for i, next := range servers[1:] {
				if r := start(t, path, next); r.Moved != moves {
					t.Fatalf("%+v, want %d moved", r, moves)
				}
				for _, c := range clients {
					c.say("f\nhal")
					c.hears(fmt.Sprintf("%s %d half", who[i], i+2))
				}
			}
			for range len(names) {
				if name := <-names; name != "localhost" {
					t.Errorf("Accept sees the server name %q, want localhost", name)
				}
			}
		})
	}
}

// A version that takes no TLS connection is refused, as one that takes no plain connection. What
// it is shown in the rehearsal has no keys.
func TestRefusesAllOverTLS(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	a, b, c := lines("a"), lines("b"), lines("c")
	a.Drain.Delay = patience
	for _, srv := range []*loop.Server{a, b, c} {
		srv.TLS = &tls.Config{Certificates: []tls.Certificate{testkit.Certificate("localhost")}}
	}
	b.Accept = func(c *loop.Conn) loop.Handler {
		if state, ok := c.TLS(); !ok || state.Version != tls.VersionTLS13 {
			t.Errorf("Accept sees TLS: %v, %x; want 1.3", ok, state.Version)
		}
		return nil
	}
	start(t, path, a)
	var clients []*client
	for range 5 {
		c := dial(t, a)
		c.secure()
		c.say("one\nhal")
		c.hears("a 1 one")
		clients = append(clients, c)
	}
	if n, err := open(t, b, handover.Config{Path: path}); err == nil {
		t.Fatalf("the next process is in charge: %+v; want an error, as it takes no connection", n.report)
	}
	if r := start(t, path, c); r.Moved != len(clients) {
		t.Errorf("after the failure %+v, want all moved", r)
	}
	for _, c := range clients {
		c.say("f\n")
		c.hears("c 2 half")
	}
}

// One process answers HTTP: the old one until the switch, the next one after it.
func TestHTTP(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	slow := make(chan struct{})
	serve := func(who string) func(h *handover.Handover) {
		return func(h *handover.Handover) {
			mux := http.NewServeMux()
			mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, who) })
			mux.HandleFunc("/slow", func(w http.ResponseWriter, _ *http.Request) {
				slow <- struct{}{}
				time.Sleep(20 * time.Millisecond)
				_, _ = io.WriteString(w, who)
			})
			if err := h.ServeHTTP("api", httpAddr, &http.Server{Handler: mux}); err != nil {
				t.Error(err)
			}
		}
	}
	httpAddr = testkit.FreeAddr(t)
	get := func(path string) string {
		res, err := http.Get("http://" + httpAddr + path)
		if err != nil {
			return err.Error()
		}
		defer res.Body.Close()
		text, _ := io.ReadAll(res.Body)
		return string(text)
	}
	openHTTP(t, lines("a"), path, serve("a"), nil)
	if got := get("/"); got != "a" {
		t.Errorf("a serves, and %q answers", got)
	}
	answer := make(chan string)
	go func() { answer <- get("/slow") }()
	<-slow
	_, err := openHTTPErr(t, lines("x"), path, serve("x"), errors.New("no database"))
	if err == nil {
		t.Error("a process that cannot start is ready")
	}
	if got := get("/"); got != "a" {
		t.Errorf("after a failure %q answers, want a", got)
	}
	if got := <-answer; got != "a" {
		t.Errorf("a request in hand is answered %q, want a", got)
	}
	openHTTP(t, lines("b"), path, serve("b"), nil)
	for range 10 {
		if got := get("/"); got != "b" {
			t.Errorf("after the handover %q answers, want b", got)
		}
	}
}

var httpAddr string

func openHTTP(t *testing.T, srv *loop.Server, path string, more func(*handover.Handover), fails error) *node {
	t.Helper()
	n, err := openHTTPErr(t, srv, path, more, fails)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func openHTTPErr(t *testing.T, srv *loop.Server, path string, more func(*handover.Handover), fails error) (*node, error) {
	srv.Logger = zerolog.Nop()
	h, err := handover.Open(t.Context(), srv, handover.Config{Path: path, Patience: time.Second})
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { _ = h.Close() })
	more(h)
	if fails != nil {
		return nil, errors.Join(fails, h.Close())
	}
	n := &node{Handover: h, ended: make(chan error, 1)}
	n.report, err = h.Ready(t.Context())
	return n, err
}

// The server refuses clients that are no successors, and keeps serving.
func TestStrangers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	a := lines("a")
	n, err := open(t, a, handover.Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	c := dial(t, a)
	n.SpendReserve()
	for name, says := range map[string]string{
		"nothing":         "",
		"half a message":  "\x01\x00",
		"a huge length":   "\x01\x00\x00\x00\x00\xff\xff\xff\xff",
		"no JSON":         "\x01\x00\x00\x00\x00\x00\x00\x00\x05hello",
		"another message": "\x05\x00\x00\x00\x00\x00\x00\x00\x00",
		"version 1":       "H\x00\x00\x00\x23" + `{"Protocol":"loopwheel","Version":1}`,
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
	testkit.Eventually(t, "the reserve is whole again", n.HasReserve)
	for range 5 { // which say nothing, for two seconds at most
		silent, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		defer silent.Close()
	}
	for name, wrong := range map[string]struct {
		srv *loop.Server
		cfg handover.Config
	}{
		"another service":   {lines("b"), handover.Config{Service: "another"}},
		"no common address": {&loop.Server{Addr: "tcp://127.0.0.2:0", Accept: accept("b")}, handover.Config{}},
	} {
		wrong.cfg.Path = path
		if _, err := open(t, wrong.srv, wrong.cfg); err == nil || !strings.Contains(err.Error(), "refuses") {
			t.Errorf("%s: %v, want a refusal", name, err)
		}
	}
	if r := start(t, path, lines("b")); r.Moved != 1 {
		t.Errorf("the right one gets %+v", r)
	}
}

// A successor that cannot start leaves the old server unchanged, however often it tries.
func TestNextDoesNotStart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	a := lines("a")
	a.Limits.MaxConns = 1
	start(t, path, a)
	c := dial(t, a)
	for range 3 {
		bad := lines("b")
		bad.OnStart = func(*loop.Loop) { panic("no database") }
		if _, err := open(t, bad, handover.Config{Path: path}); err == nil || !strings.Contains(err.Error(), "no database") {
			t.Errorf("it has not started, and says %v", err)
		}
	}
	c.say("one\n")
	c.hears("a 1 one")
	if r := start(t, path, lines("c")); r.Moved != 1 {
		t.Errorf("%+v", r)
	}
	c.say("two\n")
	c.hears("c 2 two")
}

// An address that the next version lacks keeps its connections in the old process.
func TestRemovedAddress(t *testing.T) {
	dir := t.TempDir()
	a := lines("a")
	a.Listeners = []loop.Listener{{Addr: "unix://" + filepath.Join(dir, "x")}}
	a.Drain.Delay = patience
	a.Hooks.OnDrain = func(c *loop.Conn) { _ = c.Send([]byte("bye")) }
	start(t, filepath.Join(dir, "s"), a)
	kept := dial(t, a)
	nc, err := net.Dial("unix", filepath.Join(dir, "x"))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	stays := &client{t, nc, bufio.NewReader(nc)}
	for _, c := range []*client{kept, stays} {
		c.say("one\n")
		c.hears("a 1 one")
	}
	r := start(t, filepath.Join(dir, "s"), lines("b"))
	if want := map[string]int{"no address": 1}; r.Moved != 1 || !reflect.DeepEqual(r.Stayed, want) {
		t.Errorf("%d moved and %v stayed, want 1 and %v", r.Moved, r.Stayed, want)
	}
	kept.say("two\n")
	kept.hears("b 2 two")
	stays.say("two\n")
	stays.hears("a 2 two")
}

func TestMistakes(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "accounts.db")
	if err := os.WriteFile(file, []byte("data"), 0o600); err != nil {
		t.Fatal(err)
	}
	public := filepath.Join(dir, "public")
	if err := os.Mkdir(public, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(public, 0o777); err != nil {
		t.Fatal(err)
	}
	for want, cfg := range map[string]handover.Config{
		"not a socket": {Path: file},
		"bytes, and":   {Path: filepath.Join(dir, strings.Repeat("x", 108))},
		"others may":   {Path: filepath.Join(public, "s")},
		"negative":     {Path: filepath.Join(dir, "s"), Timeout: -1},
		"the unit":     {Path: filepath.Join(dir, "s"), StartTimeout: 30},
		"PIDFile":      {Path: filepath.Join(dir, "s"), PIDFile: filepath.Join(dir, "none", "pid")},
		"regular file": {Path: filepath.Join(dir, "s"), PIDFile: public},
	} {
		if _, err := open(t, lines("a"), cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want an error that says %q", err, want)
		}
	}
	if text, _ := os.ReadFile(file); string(text) != "data" {
		t.Errorf("the file has %q", text)
	}
}

// A PID file that is a link stays one, and one in a directory of another user is overwritten.
func TestPIDFile(t *testing.T) {
	for _, name := range []string{"a link", "a directory without permission"} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path, file := filepath.Join(dir, "pid"), filepath.Join(dir, "pid")
			if err := os.WriteFile(file, []byte("a number of another process\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			if name == "a link" {
				path = filepath.Join(t.TempDir(), "pid")
				if err := os.Symlink(file, path); err != nil {
					t.Fatal(err)
				}
			} else if os.Getuid() == 0 {
				t.Skip("root has permission")
			} else if err := os.Chmod(dir, 0o500); err != nil {
				t.Fatal(err)
			} else {
				defer func() { _ = os.Chmod(dir, 0o700) }()
			}
			if _, err := open(t, lines("a"), handover.Config{PIDFile: path}); err != nil {
				t.Fatal(err)
			}
			text, _ := os.ReadFile(file)
			testkit.Want(t, "the file", string(text), fmt.Sprintln(os.Getpid()))
			if i, err := os.Lstat(path); err != nil || name == "a link" && i.Mode()&os.ModeSymlink == 0 {
				t.Errorf("the link is now %v, %v", i.Mode(), err)
			}
		})
	}
}
