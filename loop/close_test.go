package loop_test

import (
	"errors"
	"fmt"
	"io"
	"syscall"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/looptest"
)

var errOwn = errors.New("a reason of my own")

// commands closes in the way that a message asks for.
func commands(c *loop.Conn, msg []byte) error {
	switch string(msg) {
	case "close":
		c.Close()
	case "closeWith":
		c.CloseWithError(errOwn)
	case "return":
		return errOwn
	case "panic":
		panic(errOwn)
	case "close and panic":
		c.Close()
		panic(errOwn)
	case "two":
		c.CloseWithError(errOwn)
		return io.ErrUnexpectedEOF
	}
	return nil
}

// Every way to end calls OnClose exactly once, with the first cause.
func TestReasonsOfOnClose(t *testing.T) {
	for _, c := range []struct {
		name string
		do   func(srv *looptest.Server, p *looptest.Peer)
		want error
	}{
		{"Close", sends("close\n"), nil},
		{"CloseWithError", sends("closeWith\n"), errOwn},
		{"returned", sends("return\n"), errOwn},
		{"panic", sends("panic\n"), errOwn},
		{"Close, then panic", sends("close and panic\n"), nil},
		{"CloseWithError, then returned", sends("two\n"), errOwn},
		{"peer closes", func(_ *looptest.Server, p *looptest.Peer) { p.Close() }, io.EOF},
		{"half-close", func(_ *looptest.Server, p *looptest.Peer) { p.CloseWrite() }, io.EOF},
		{"reset", func(_ *looptest.Server, p *looptest.Peer) { p.Reset() }, syscall.ECONNRESET},
		{"idle", func(*looptest.Server, *looptest.Peer) { wait(time.Minute) }, loop.ErrIdle},
		{"slow", slow, loop.ErrSlowConsumer},
		{"codec", sends("a line that is too long\n"), codec.ErrTooLong},
		{"drain", func(srv *looptest.Server, _ *looptest.Peer) { srv.Shutdown() }, loop.ErrServerClosed},
		{"Close and EOF", func(_ *looptest.Server, p *looptest.Peer) { p.Send("close\n"); p.Close() }, nil},
		{"closed by another", func(srv *looptest.Server, p *looptest.Peer) {
			tell(srv, p, func(c *loop.Conn) { c.CloseWithError(errOwn); c.CloseWithError(io.EOF) })
		}, errOwn},
	} {
		t.Run(c.name, func(t *testing.T) {
			var reasons []error
			srv := &loop.Server{Codec: codec.Lines{Max: 16}, IdleTimeout: 30 * time.Second, Limits: loop.Limits{MaxOutbound: 10}}
			srv.Accept = func(*loop.Conn) loop.Handler {
				return script{Message: commands, Close: func(_ *loop.Conn, err error) { reasons = append(reasons, err) }}
			}
			bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
				p := srv.Open()
				c.do(srv, p)
				wait(time.Minute)
				p.Close()
				p.Unblock()
				wait(time.Hour)
				if len(reasons) != 1 || !errors.Is(reasons[0], c.want) {
					t.Errorf("OnClose got %v, want once %v", reasons, c.want)
				}
				if st := srv.Stats(); st.Closed != 1 || st.Conns != 0 || st.Timers != 0 {
					t.Errorf("stats %+v", st)
				}
			})
		})
	}
}

func sends(s string) func(*looptest.Server, *looptest.Peer) {
	return func(_ *looptest.Server, p *looptest.Peer) { p.Send(s) }
}

func slow(srv *looptest.Server, p *looptest.Peer) {
	p.Block(0)
	tell(srv, p, func(c *loop.Conn) {
		for range 20 {
			_ = c.Send([]byte("x"))
		}
	})
}

// Nothing runs for a connection after Close: no frame that is decoded already, no timer, no hook,
// no Tell. And Close does not call OnClose itself.
func TestNothingAfterClose(t *testing.T) {
	var j *journal
	srv := &loop.Server{Codec: codec.Lines{}, Timeouts: loop.Timeouts{Close: time.Minute}, Accept: func(c *loop.Conn) loop.Handler {
		late := func() { j.add("late") }
		return script{
			Message: func(c *loop.Conn, msg []byte) error {
				j.add(string(msg))
				c.AfterFunc(0, late)
				c.AfterFunc(time.Second, late)
				c.Every(time.Second, late)
				c.OnIdle(loop.IdleRead, time.Second, func(int) { late() })
				c.OnIdle(loop.WriteStalled, time.Second, func(int) { late() })
				c.SetIdleTimeout(2 * time.Second)
				_ = c.Ref().Tell(func(*loop.Conn) { late() })
				c.Close()
				j.add("close has returned")
				return nil
			},
			Close: func(c *loop.Conn, err error) { j.at(fmt.Sprint("closed ", err)) },
		}
	}}
	bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
		j = newJournal()
		p := srv.Open()
		p.Block(0)
		send(srv, p, 10) // so that the close has to wait
		p.Send("one\ntwo\nthree\n")
		p.Send("four\n")
		wait(30 * time.Second)
		j.expect(t, "one", "close has returned")
		p.Unblock()
		j.expect(t, "one", "close has returned", "30s closed <nil>")
		wait(time.Hour)
		j.expect(t, "one", "close has returned", "30s closed <nil>")
	})
}

// A closed connection refuses everything, harmlessly.
func TestMethodsAfterClose(t *testing.T) {
	var c *loop.Conn
	check := func(t *testing.T, err error) {
		if e := c.Send(nil); !errors.Is(e, loop.ErrClosed) {
			t.Errorf("Send: %v", e)
		}
		if n, e := c.Write([]byte("x")); n != 0 || !errors.Is(e, loop.ErrClosed) {
			t.Errorf("Write: %d, %v", n, e)
		}
		if !c.Info().IdleDeadline.IsZero() || c.Pending() != 0 {
			t.Error("has an idle deadline, or output")
		}
		c.Close()
		c.CloseWithError(io.ErrNoProgress)
		c.SetIdleTimeout(time.Second)
		c.SetCodec(codec.Lines{})
		c.PauseRead()
		c.ResumeRead()
		c.OnFlushed(nil)
		at := false
		c.AfterClose(func(e error) { at = e == err })
		if !at || c.RemoteAddr() == nil || c.LocalAddr() == nil || c.Loop() == nil || c.Log() == nil || c.Codec() == nil {
			t.Error("AfterClose did not run at once, or something is nil")
		}
	}
	inOnClose := func(*testing.T, error) {}
	srv := &loop.Server{IdleTimeout: time.Minute}
	srv.Accept = func(conn *loop.Conn) loop.Handler {
		c = conn
		return script{Close: func(_ *loop.Conn, err error) { inOnClose(t, err) }}
	}
	bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
		p := srv.Open()
		inOnClose = check
		tell(srv, p, func(c *loop.Conn) { c.CloseWithError(errOwn) })
		srv.Do(0, func(*loop.Loop) { check(t, errOwn) })
		wait(time.Hour)
	})
}

// A callback may close and write to other connections of its loop, and so may OnClose.
func TestCloseOfOthers(t *testing.T) {
	var conns []*loop.Conn
	var j *journal
	srv := &loop.Server{Accept: func(c *loop.Conn) loop.Handler {
		n := len(conns)
		conns = append(conns, c)
		return script{
			Message: func(*loop.Conn, []byte) error {
				conns[1].Close()
				conns[1].Close()
				j.add("closed another")
				return nil
			},
			Close: func(*loop.Conn, error) {
				j.add(fmt.Sprint("OnClose ", n))
				for _, other := range conns {
					_ = other.Send(fmt.Append(nil, n))
				}
				if n < 3 {
					conns[n+1].Close()
				}
			},
		}
	}}
	bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
		j = newJournal()
		p := [4]*looptest.Peer{srv.Open(), srv.Open(), srv.Open(), srv.Open()}
		p[0].Send("x")
		j.expect(t, "closed another", "OnClose 1", "OnClose 2", "OnClose 3")
		for i, want := range []string{"123", "", "1", "12"} {
			if got := p[i].Received(); got != want || p[i].Ended() != (i != 0) {
				t.Errorf("peer %d received %q, ended %v; want %q", i, got, p[i].Ended(), want)
			}
		}
	})
}

// Close in each kind of callback, Accept included.
func TestCloseInEachCallback(t *testing.T) {
	for name, setup := range map[string]func(c *loop.Conn){
		"Accept":    func(c *loop.Conn) { c.Close() },
		"OnIdle":    func(c *loop.Conn) { c.OnIdle(loop.IdleRead, 1, func(int) { c.Close() }) },
		"AfterFunc": func(c *loop.Conn) { c.AfterFunc(0, c.Close) },
		"Every":     func(c *loop.Conn) { c.Every(time.Second, c.Close) },
		"Tell":      func(c *loop.Conn) { _ = c.Ref().Tell((*loop.Conn).Close) },
		"Post":      func(c *loop.Conn) { _ = c.Loop().Post(c.Close) },
	} {
		t.Run(name, func(t *testing.T) {
			n := 0
			srv := &loop.Server{Accept: func(c *loop.Conn) loop.Handler {
				c.Send([]byte("hi"))
				setup(c)
				if n != 0 {
					t.Error("Close called OnClose")
				}
				return script{Close: func(*loop.Conn, error) { n++ }}
			}}
			bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
				p := srv.Open()
				wait(time.Minute)
				if n != 1 || p.Received() != "hi" || !p.Ended() || p.Reason() != nil {
					t.Errorf("OnClose ran %d times, reason %v", n, p.Reason())
				}
			})
		})
	}
}

func TestAfterCloseOrderAndPanics(t *testing.T) {
	var j *journal
	srv := &loop.Server{Accept: func(c *loop.Conn) loop.Handler {
		for i := range 3 {
			c.AfterClose(func(err error) {
				j.add(fmt.Sprint("after ", i, " ", err))
				panic(i)
			})
		}
		return script{Close: func(c *loop.Conn, err error) {
			j.add(fmt.Sprint("OnClose ", err))
			panic("OnClose")
		}}
	}}
	bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
		j = newJournal()
		p, q := srv.Open(), srv.Open()
		tell(srv, p, func(c *loop.Conn) { c.CloseWithError(errOwn) })
		own := errOwn.Error()
		j.expect(t, "OnClose "+own, "after 0 "+own, "after 1 "+own, "after 2 "+own)
		if q.Ended() || srv.Stats().Panics != 4 || srv.Stats().Closed != 1 || srv.Stats().Conns != 1 {
			t.Errorf("stats %+v", srv.Stats())
		}
		j.entries = nil
	})
}
