package loop_test

import (
	"context"
	"errors"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/looptest"
)

// A refused connection is closed, after a farewell, and OnClose is not called; what Accept began
// for it is undone.
func TestAcceptRefuses(t *testing.T) {
	for name, end := range map[string]func() loop.Handler{
		"nil":   func() loop.Handler { return nil },
		"panic": func() loop.Handler { panic("Accept") },
	} {
		t.Run(name, func(t *testing.T) {
			srv := &loop.Server{IdleTimeout: time.Minute, Timeouts: loop.Timeouts{FirstByte: time.Second}, Accept: func(c *loop.Conn) loop.Handler {
				late := func() { t.Error("something ran for a refused connection") }
				c.Send([]byte("go away"))
				c.AfterFunc(0, late)
				c.Every(time.Second, late)
				c.OnIdle(loop.IdleRead, time.Second, func(int) { late() })
				_ = c.Ref().Tell(func(*loop.Conn) { late() })
				return end()
			}}
			bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
				p := srv.Open()
				if !p.Closed() || p.Ended() || p.Received() != "go away" {
					t.Errorf("closed %v, OnClose called: %v", p.Closed(), p.Ended())
				}
				wait(time.Hour)
				st := srv.Stats()
				if st.Refused != 1 || st.Accepted != 1 || st.Closed != 0 || st.Conns != 0 || st.Timers != 0 {
					t.Errorf("stats %+v", st)
				}
			})
		})
	}
}

// An oddListener is the code of somebody who has not read all of net.Listener.
type oddListener struct {
	*net.TCPListener
	odd []func() (net.Conn, error) // what Accept does at first
}

func (l *oddListener) Addr() net.Addr {
	if l.TCPListener == nil {
		return nil
	}
	return l.TCPListener.Addr()
}

func (l *oddListener) Accept() (net.Conn, error) {
	if len(l.odd) == 0 {
		return l.TCPListener.Accept()
	}
	f := l.odd[0]
	l.odd = l.odd[1:]
	return f()
}

// What a listener from outside does wrong is logged, and ends neither the process nor the
// accepting.
func TestOddListener(t *testing.T) {
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = tcp.(*net.TCPListener).SetDeadline(time.Now().Add(-time.Second)) // left by its earlier owner
	a, b := net.Pipe()
	defer b.Close()
	odd := &oddListener{tcp.(*net.TCPListener), []func() (net.Conn, error){
		func() (net.Conn, error) { panic("Accept") },
		func() (net.Conn, error) { return nil, nil },
		func() (net.Conn, error) { return (*net.TCPConn)(nil), nil },
		func() (net.Conn, error) { return a, nil },
		func() (net.Conn, error) { return nil, os.ErrDeadlineExceeded },
	}}
	var log strings.Builder
	srv := &loop.Server{Listeners: []loop.Listener{{AcceptFrom: odd}}, Accept: silent, Logger: zerolog.New(zerolog.SyncWriter(&log)).Level(zerolog.ErrorLevel)}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if err := srv.Start(ctx); err != nil {
		t.Fatal(err)
	}
	c, err := net.Dial("tcp", tcp.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	testkit.Eventually(t, "the connection", func() bool { return srv.Stats().Conns == 1 })
	cancel()
	if err := srv.Wait(); err != nil {
		t.Error(err)
	}
	if n := srv.Stats().Panics; n != 1 {
		t.Errorf("%d panics are counted, want 1", n)
	}
	if s := log.String(); !strings.Contains(s, "accepts connections of type *net.pipe") {
		t.Errorf("no error in the log says that net.Pipe does not do: %s", s)
	}
}

// A refusal after Close, or with a socket that takes nothing, leaves nothing behind either.
func TestAcceptRefusesWhatItClosed(t *testing.T) {
	srv := &loop.Server{Accept: func(c *loop.Conn) loop.Handler {
		c.Send([]byte("never taken"))
		c.Close()
		return nil
	}}
	bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
		for _, blind := range []bool{false, true} {
			if blind {
				srv.BlindWrites()
			}
			resume := srv.Stall(0)
			p := srv.Open()
			p.Block(3)
			resume()
			wait(time.Hour)
			if !p.Closed() || p.Ended() || p.Received() != "nev" {
				t.Errorf("closed %v, OnClose called: %v", p.Closed(), p.Ended())
			}
		}
		if st := srv.Stats(); st.Timers != 0 || st.Conns != 0 || st.Refused != 2 {
			t.Errorf("stats %+v", st)
		}
	})
}

// Accept runs before the first byte is read, and what it sends leaves first.
func TestGreeting(t *testing.T) {
	srv := &loop.Server{Accept: func(c *loop.Conn) loop.Handler {
		c.Send([]byte("hello "))
		return loop.HandlerFunc(echo)
	}}
	bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
		resume := srv.Stall(0)
		p := srv.Open()
		p.Send("x")
		resume()
		if got := p.Received(); got != "hello x" || p.Writes() != 2 {
			t.Errorf("received %q in %d writes", got, p.Writes())
		}
	})
}

func TestMaxConns(t *testing.T) {
	bubble(t, &loop.Server{Limits: loop.Limits{MaxConns: 3}, NumLoops: 2}, func(t *testing.T, srv *looptest.Server) {
		peers := []*looptest.Peer{srv.Open(), srv.Open(), srv.Open(), srv.Open()}
		for i, p := range peers {
			if p.Closed() != (i == 3) {
				t.Errorf("peer %d is closed: %v", i, p.Closed())
			}
		}
		peers[0].Close()
		if srv.Open().Closed() {
			t.Error("refused, although there is room again")
		}
		if st := srv.Stats(); st.Accepted != 5 || st.Refused != 1 || st.Conns != 3 || st.Closed != 1 {
			t.Errorf("stats %+v", st)
		}
	})
}

// A connection goes to the loop that has the fewest.
func TestLoopsAreBalanced(t *testing.T) {
	bubble(t, &loop.Server{NumLoops: 3}, func(t *testing.T, srv *looptest.Server) {
		var peers []*looptest.Peer
		for range 9 {
			peers = append(peers, srv.Open())
		}
		check := func() {
			t.Helper()
			for i, l := range srv.Stats().Loops {
				if l.Conns != 3 {
					t.Errorf("loop %d has %d connections", i, l.Conns)
				}
			}
		}
		check()
		for i := range 3 {
			tell(srv, peers[i], func(c *loop.Conn) { c.Close() })
		}
		wait(time.Minute) // the linger, if any
		for range 3 {
			srv.Open()
		}
		check()
	})
}

// Stopping does not wait for the pause.
func TestStopDuringBackoff(t *testing.T) {
	bubble(t, &loop.Server{}, func(t *testing.T, srv *looptest.Server) {
		for range 10 {
			srv.FailAccept(0, syscall.ENFILE)
		}
		began := time.Now()
		if err := srv.Stop(); err != nil || time.Since(began) != 0 {
			t.Errorf("Stop took %v: %v", time.Since(began), err)
		}
	})
}

func TestLocal(t *testing.T) {
	made := 0
	counter := loop.NewLocal(func(l *loop.Loop) int { made++; return 100 * l.Index() })
	zero := loop.NewLocal[string](nil)
	bubble(t, &loop.Server{NumLoops: 2}, func(t *testing.T, srv *looptest.Server) {
		for range 3 {
			for i := range 2 {
				srv.Do(i, func(l *loop.Loop) {
					*counter.Get(l)++
					*zero.Get(l) += "x"
				})
			}
		}
		for i := range 2 {
			srv.Do(i, func(l *loop.Loop) {
				if n, s := *counter.Get(l), *zero.Get(l); n != 100*i+3 || s != "xxx" {
					t.Errorf("loop %d has %d and %q", i, n, s)
				}
			})
		}
		if made != 2 {
			t.Errorf("made %d times", made)
		}
	})
}

func TestConnsYieldsTheOpenOnes(t *testing.T) {
	bubble(t, &loop.Server{}, func(t *testing.T, srv *looptest.Server) {
		for range 5 {
			srv.Open()
		}
		srv.Do(0, func(l *loop.Loop) {
			n := 0
			for c := range l.Conns() {
				if c.Close(); n == 2 {
					break
				}
				n++
			}
			for c := range l.Conns() {
				n++
				_ = c.Ref().Tell(func(c *loop.Conn) { c.CloseWithError(errors.New("left")) })
			}
			if n != 4 || l.NumConns() != 5 {
				t.Errorf("yielded %d, NumConns %d", n, l.NumConns())
			}
		})
		srv.Do(0, func(l *loop.Loop) {
			if l.NumConns() != 0 {
				t.Errorf("%d are left", l.NumConns())
			}
		})
	})
}
