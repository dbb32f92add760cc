package websocket_test

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/loopwheel/loopwheel/codec/websocket"
	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/looptest"
)

// askDatabase is an Upgrade that takes its time, as long as the query says, or until nobody waits.
func askDatabase(r *http.Request, answer http.Header) error {
	took, err := time.ParseDuration(r.URL.Query().Get("took"))
	if err != nil {
		return err
	}
	select {
	case <-time.After(took):
	case <-r.Context().Done():
		return r.Context().Err()
	}
	switch r.URL.Query().Get("user") {
	case "nobody":
		return &websocket.HandshakeError{Status: http.StatusUnauthorized, Reason: "log in"}
	case "bug":
		panic("in Upgrade")
	}
	answer.Set("Set-Cookie", "a=1")
	return nil
}

func asks(query string) string { return request("x", "GET /chat?"+query+" HTTP/1.1") }

// later runs a server in memory whose Upgrade asks a database.
func later(t *testing.T, srv *loop.Server) *looptest.Server {
	srv.NumLoops = 1
	srv.Codec = &websocket.Codec{Upgrade: askDatabase, UpgradeBlocks: true, HandshakeTimeout: 5 * time.Second}
	srv.Accept = acceptGreeter
	return looptest.Start(t, srv)
}

// Messages after a request wait for the answer, and one connection's wait is nobody else's.
func TestUpgradeAnswersLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := later(t, &loop.Server{})
		p, q := srv.Open(), srv.Open()
		p.Send(asks("took=2s")+string(text("1").wire()), string(text("2").wire()))
		p.Send(string(text(strings.Repeat("x", 40<<10)).wire()))
		q.Send(asks("took=0s"))
		head, frames := received(q)
		if !strings.HasPrefix(head, "HTTP/1.1 101 ") {
			t.Errorf("the other one: %q", head)
		}
		wants(t, frames, `text "welcome"`)
		if srv.Sleep(2*time.Second - 1); p.Received() != "" {
			t.Error("answered before the database")
		}
		srv.Sleep(1)
		head, frames = received(p)
		if !strings.HasPrefix(head, "HTTP/1.1 101 ") || !strings.Contains(head, "Set-Cookie: a=1") {
			t.Errorf("the answer is %q", head)
		}
		if len(frames) != 4 || frames[0] != `text "welcome"` || frames[1] != `text "you said 1"` || frames[2] != `text "you said 2"` {
			t.Errorf("got %.80q", frames)
		}
		p.Send(string(text("3").wire()))
		_, frames = received(p)
		wants(t, frames, `text "you said 3"`)
	})
}

// What may happen while the answer is waited for: each ends as it would have without the wait.
func TestUpgradeAnswersTooLate(t *testing.T) {
	for name, tc := range map[string]struct {
		query  string
		server *loop.Server // nil: a plain one
		do     func(srv *looptest.Server, p *looptest.Peer)
		head   string // what the answer begins with; "" is none
		frames []string
		reason func(err error) bool
	}{
		"refused":       {query: "took=1s&user=nobody", head: "HTTP/1.1 401 ", reason: isRefused(401)},
		"another error": {query: "took=soon", head: "HTTP/1.1 403 ", reason: isRefused(0)},
		"panics": {query: "took=1s&user=bug", head: "HTTP/1.1 503 ", reason: func(err error) bool {
			e, ok := errors.AsType[*loop.PanicError](err)
			return ok && e.Value == "in Upgrade"
		}},
		"the handshake times out":            {query: "took=1h", head: "HTTP/1.1 408 ", reason: is(websocket.ErrTimeout)},
		"the idle timeout does not count it": {query: "took=4s", server: &loop.Server{IdleTimeout: 3 * time.Second, Timeouts: loop.Timeouts{FirstByte: time.Second, Frame: time.Second}}, head: "HTTP/1.1 101 ", frames: []string{`text "welcome"`, "close 1001"}, reason: is(loop.ErrIdle)},
		"the client goes":                    {query: "took=1s", do: func(_ *looptest.Server, p *looptest.Peer) { p.Reset() }, reason: func(err error) bool { return err != nil }},
		"the client ends its output": {query: "took=1s", do: func(_ *looptest.Server, p *looptest.Peer) { p.CloseWrite() },
			head: "HTTP/1.1 101 ", frames: []string{`text "welcome"`}, reason: is(io.EOF)},
		"the client ends its output, and is refused": {query: "took=1s&user=nobody",
			do: func(_ *looptest.Server, p *looptest.Peer) { p.CloseWrite() }, head: "HTTP/1.1 401 ", reason: isRefused(401)},
		"the server drains": {query: "took=1s", do: func(srv *looptest.Server, _ *looptest.Peer) { srv.Shutdown() },
			head: "HTTP/1.1 101 ", frames: []string{`text "welcome"`, "close 1001"}, reason: is(loop.ErrServerClosed)},
		"the client floods": {query: "took=1s", do: func(_ *looptest.Server, p *looptest.Peer) {
			for range 100 {
				p.Send(strings.Repeat("\x00", 64<<10))
			}
		}, head: "HTTP/1.1 101 ", frames: []string{`text "welcome"`, "close 1002"}, reason: func(err error) bool {
			e, ok := errors.AsType[*websocket.CloseError](err)
			return ok && e.Err != nil
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if tc.server == nil {
					tc.server = new(loop.Server)
				}
				srv := later(t, tc.server)
				p := srv.Open()
				p.Send(asks(tc.query))
				if tc.do != nil {
					tc.do(srv, p)
				}
				srv.Sleep(10 * time.Second)
				head, frames := received(p)
				if !strings.HasPrefix(head, tc.head) || tc.head == "" && head != "" {
					t.Errorf("the answer is %q", head)
				}
				if tc.frames != nil {
					wants(t, frames, tc.frames...)
				}
				testkit.Want(t, "p.Ended()", p.Ended(), true)
				testkit.Want(t, "tc.reason(p.Reason())", tc.reason(p.Reason()), true)
				srv.Sleep(2 * time.Hour)
				if st := srv.Stats(); st.Offloaded+st.OffloadedWaiting != 0 {
					t.Error("a job is left behind")
				}
			})
		})
	}
}

// Close waits for the peer's close frame as soon as IsOpen says so, which is from OnOpen on. A
// connection whose handshake is answered, but not read to its end, is not open.
func TestCloseBeforeAndInOnOpen(t *testing.T) {
	for name, paused := range map[string]bool{"in OnOpen": false, "before": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var conn *loop.Conn
				isOpen := false
				closeIt := func(*http.Request) error {
					isOpen = websocket.Of(conn).IsOpen()
					websocket.Close(conn, 4000, "")
					return nil
				}
				srv := looptest.Start(t, &loop.Server{
					NumLoops: 1, Codec: &websocket.Codec{Upgrade: askDatabase, UpgradeBlocks: true},
					Accept: func(c *loop.Conn) loop.Handler {
						conn, websocket.Of(c).OnOpen = c, closeIt
						return &greeter{func(error) {}}
					},
				})
				p := srv.Open()
				p.Send(asks("took=2s"))
				srv.Sleep(time.Second)
				if paused {
					_ = srv.Loops()[0].Post(func() { conn.PauseRead() })
				}
				srv.Sleep(2 * time.Second)
				if paused {
					_ = srv.Loops()[0].Post(func() { _ = closeIt(nil) })
					srv.Sleep(0)
				}
				head, frames := received(p)
				if !strings.HasPrefix(head, "HTTP/1.1 101 ") {
					t.Errorf("the answer is %q", head)
				}
				wants(t, frames, "close 4000")
				if isOpen == paused || p.Ended() != paused {
					t.Errorf("IsOpen is %v, and the connection has ended: %v; want %v, %v", isOpen, p.Ended(), !paused, paused)
				}
				srv.Sleep(websocket.CloseWait)
				testkit.Want(t, "p.Ended()", p.Ended(), true)
			})
		})
	}
}

func is(want error) func(error) bool { return func(err error) bool { return errors.Is(err, want) } }

// isRefused wants a *HandshakeError with a status, or another error that Upgrade has returned.
func isRefused(status int) func(error) bool {
	return func(err error) bool {
		e, ok := errors.AsType[*websocket.HandshakeError](err)
		return ok == (status != 0) && (!ok || e.Status == status) && err != nil
	}
}

// On real sockets: a hundred clients wait for their answers at once, and half of them leave.
func TestUpgradeLaterOnSockets(t *testing.T) {
	release := make(chan struct{})
	begun, left := make(chan struct{}, 100), make(chan error, 100)
	s := start(t, &websocket.Codec{UpgradeBlocks: true, Upgrade: func(r *http.Request, _ http.Header) error {
		if r.URL.Query().Get("leaves") == "" {
			<-release
			return nil
		}
		begun <- struct{}{}
		<-r.Context().Done() // the client has left
		left <- r.Context().Err()
		return nil
	}})
	var stay, leave []*client
	for range 50 {
		c, d := s.dial(t), s.dial(t)
		c.write(t, request("x")+string(text("after the request").wire()))
		d.write(t, request("x", "GET /chat?leaves=1 HTTP/1.1"))
		stay, leave = append(stay, c), append(leave, d)
	}
	for range leave {
		testkit.Receive(t, "the begin of Upgrade", begun)
	}
	for _, c := range leave {
		_ = c.Conn.(interface{ SetLinger(int) error }).SetLinger(0) // a reset: an end alone would be waited out
		_ = c.Close()
	}
	close(release)
	for _, c := range stay {
		if r := c.response(t); r.StatusCode != http.StatusSwitchingProtocols {
			t.Fatalf("answered %s", r.Status)
		}
		if got := c.next(); got != `text "after the request"` {
			t.Fatalf("got %s", got)
		}
	}
	for range leave {
		if err := testkit.Receive(t, "the end of Upgrade", left); err == nil {
			t.Error("the context of one who has left is not done")
		}
	}
}
