package loop_test

import (
	"context"
	"io"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/looptest"
)

// A stage is where a case runs: two connections of a server, the first of which is the one that
// misbehaves.
type stage struct {
	srv *looptest.Server
	p   *looptest.Peer
	c   *loop.Conn // of p
	do  func(c *loop.Conn)

	inAccept  func(c *loop.Conn) // before p is opened
	inMessage func(c *loop.Conn)
	drains    bool // everybody is closed
}

// tell runs f for p's connection if it is open.
func (s *stage) tell(f func(c *loop.Conn)) { tell(s.srv, s.p, f) }

// late runs f for p's connection even if that is closed, as one who keeps it for too long does.
func (s *stage) late(f func(c *loop.Conn)) { s.srv.Do(0, func(*loop.Loop) { f(s.c) }) }

// fill leaves output that the peer does not take until it is unblocked.
func (s *stage) fill() {
	s.p.Block(10)
	s.tell(func(c *loop.Conn) { _ = c.Send(make([]byte, 300<<10)) })
}

// situations bring a connection into a state, and then have do called on its loop for it.
var situations = map[string]func(s *stage){
	"opening": nil, // do is called in Accept
	"open":    func(s *stage) { s.tell(s.do) },
	"paused": func(s *stage) {
		s.tell((*loop.Conn).PauseRead)
		s.p.Send("held")
		s.tell(s.do)
		s.p.Send("held, too")
		s.tell((*loop.Conn).ResumeRead)
	},
	"full": func(s *stage) {
		s.fill()
		s.tell(s.do)
		s.p.Unblock()
	},
	"held back": func(s *stage) {
		s.fill()
		s.p.Send("held")
		s.tell(s.do)
		s.p.Send("held, too")
		s.p.Unblock()
	},
	"held back from now on": func(s *stage) {
		s.fill()
		s.tell(s.do)
		s.p.Send("held")
		s.p.Send("held, too")
		s.p.Unblock()
	},
	"held back, and its peer resets": func(s *stage) {
		s.fill()
		s.p.Send("held")
		s.tell(s.do)
		s.p.Reset()
	},
	"its share is used up": func(s *stage) {
		s.tell(func(c *loop.Conn) { c.SetCodec(codec.Fixed{Size: 1}) })
		messages := 0
		s.inMessage = func(c *loop.Conn) {
			testkit.Block(100 * time.Microsecond)
			if messages++; messages == 4 {
				_ = c.Ref().Tell(s.do)
			}
		}
		s.p.Send(strings.Repeat("s", 100))
	},
	"its jobs are waited for": func(s *stage) {
		s.tell(func(c *loop.Conn) {
			for range 16 {
				_ = loop.Offload(c, func(context.Context) int { testkit.Block(time.Millisecond); return 0 }, func(*loop.Conn, int) {})
			}
		})
		s.p.Send("held")
		s.tell(s.do)
		s.p.Send("held, too")
	},
	"closing": func(s *stage) {
		s.p.Block(10)
		s.tell(func(c *loop.Conn) {
			_ = c.Send(make([]byte, 300<<10))
			s.do(c)
			c.Close()
		})
		s.p.Unblock()
	},
	"closed before": func(s *stage) { s.tell(func(c *loop.Conn) { c.Close(); s.do(c) }) },
	"flushing": func(s *stage) {
		s.fill()
		s.tell((*loop.Conn).Close)
		s.late(s.do)
		s.p.Unblock()
	},
	"lingering": func(s *stage) {
		s.tell((*loop.Conn).Close)
		s.late(s.do)
		s.p.Send("thrown away")
	},
	"closed": func(s *stage) {
		s.tell((*loop.Conn).Close)
		s.p.CloseWrite()
		s.late(s.do)
	},
	"half closed": func(s *stage) {
		s.tell(func(c *loop.Conn) { c.OnEOF(func() {}) })
		s.p.CloseWrite()
		s.tell(s.do)
	},
	"write ended": func(s *stage) {
		s.tell((*loop.Conn).CloseWrite)
		s.tell(s.do)
	},
	"reset": func(s *stage) {
		s.tell(s.do)
		s.p.Reset()
	},
	"then drained": func(s *stage) {
		s.tell(s.do)
		s.drains = true
		s.srv.Shutdown()
	},
	"draining, with a job": func(s *stage) {
		s.tell(func(c *loop.Conn) {
			_ = loop.Offload(c, func(context.Context) int { testkit.Block(time.Second); return 0 }, func(*loop.Conn, int) {})
		})
		s.drains = true
		s.srv.Shutdown()
		s.tell(s.do)
	},
	"draining, and full": func(s *stage) {
		s.fill()
		s.tell(func(c *loop.Conn) { c.SetBusy(true) })
		s.drains = true
		s.srv.Shutdown()
		s.p.Send("held")
		s.tell(s.do)
		s.p.Unblock()
	},
}

// Whatever panics, in whatever state, costs its connection at most: the process lives, the others
// are served, and the counters add up.
func TestHostileErrorsAnywhere(t *testing.T) {
	log := zerolog.New(io.Discard) // which looks at errors, too
	for state, bring := range situations {
		t.Run(state, func(t *testing.T) {
			for way, give := range ways {
				for name, err := range hostileErrors() {
					// All errors in all states are 5,000 cases.
					few := name == "a typed nil" || name == "Is"
					if few || state == "open" && !testing.Short() || os.Getenv("LOOPWHEEL_SLOW") != "" {
						hostileCase(t, log, way+", "+name, err, give, bring)
					}
				}
			}
		})
	}
}

func hostileCase(t *testing.T, log zerolog.Logger, name string, err error,
	give func(*loop.Conn, error) error, bring func(*stage)) {
	closes := make(map[uint64]int)
	s := &stage{do: func(c *loop.Conn) {
		if e := give(c, err); e != nil {
			c.CloseWithError(e)
		}
	}}
	if bring == nil {
		s.inAccept, bring = s.do, func(*stage) {}
	}
	srv := &loop.Server{Timeouts: loop.Timeouts{Close: time.Second}, Logger: log, Accept: func(c *loop.Conn) loop.Handler {
		if c.ID() == 1 {
			if s.c = c; s.inAccept != nil {
				s.inAccept(c)
			}
		}
		return script{
			Message: func(c *loop.Conn, msg []byte) error {
				if s.inMessage != nil && c.ID() == 1 {
					s.inMessage(c)
				}
				return c.Send(msg)
			},
			Close: func(c *loop.Conn, err error) { closes[c.ID()]++; panic(err) },
		}
	}}
	bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
		s.srv, s.p = srv, srv.Open()
		q := srv.Open()
		bring(s)
		s.p.Send("input")
		wait(100 * time.Millisecond)
		if q.Ended() && !s.drains {
			t.Fatalf("%s: the other connection has ended: %v", name, q.Reason())
		}
		if q.Send("x"); q.Received() != "x" && !q.Closed() {
			t.Fatalf("%s: the other connection is not served", name)
		}
		s.p.CloseWrite()
		wait(3 * time.Second)
		_ = srv.Stop()
		st := srv.Stats()
		if refused := int(st.Refused); st.Conns != 0 || st.Accepted != st.Closed+st.Refused ||
			closes[1] != 1-refused || closes[2] != 1 {
			t.Fatalf("%s: OnClose ran %v times, %+v", name, closes, st)
		}
	})
}

// The same in Accept, where there is no connection yet.
func TestHostileErrorsInAccept(t *testing.T) {
	for name, err := range hostileErrors() {
		for way, do := range map[string]func(c *loop.Conn){
			"panics": func(*loop.Conn) { panic(err) },
			"closes": func(c *loop.Conn) { c.CloseWithError(err) },
			"hooks":  func(c *loop.Conn) { c.AfterClose(func(error) { panic(err) }); panic(err) },
		} {
			n := 0
			srv := &loop.Server{Accept: func(c *loop.Conn) loop.Handler {
				if n++; n == 1 {
					do(c)
				}
				return script{Message: func(c *loop.Conn, msg []byte) error { return c.Send(msg) }}
			}}
			bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
				p, q := srv.Open(), srv.Open()
				if q.Send("x"); q.Received() != "x" || !p.Closed() {
					t.Errorf("%s %s: closed: %v; the other connection is not served", way, name, p.Closed())
				}
			})
		}
	}
}

// A codec whose method panics from the beginning, as a listener's, costs each of its connections,
// and nobody else's.
func TestHostileCodecOfAListener(t *testing.T) {
	for name, err := range hostileErrors() {
		bad := badCodec{reply: func() { panic(err) }, size: func() { panic(err) },
			decode: func() error { panic(err) }, append: func() error { panic(err) }}
		quiet := badCodec{reply: bad.reply, size: bad.size}
		for way, cd := range map[string]codec.Codec{
			"Decode": bad, "FrameSize": badSizer{quiet}, "AppendReply": badReply{quiet}, "Opening": badOpener{quiet},
			"Open": badTimeout{quiet}, "DecodeFrom": badResumer{quiet}, "New": badNew{quiet}, "AppendFarewell": badFarewell{quiet},
			"Unfinished": badAssembler{quiet},
		} {
			accept := func(*loop.Conn) loop.Handler {
				return loop.HandlerFunc(func(c *loop.Conn, msg []byte) error {
					if string(msg) == "c" {
						c.Close()
					}
					return c.Send(msg)
				})
			}
			srv := &loop.Server{Addr: "tcp://127.0.0.1:0", Accept: accept, Logger: zerolog.New(io.Discard), Timeouts: loop.Timeouts{Frame: time.Minute},
				Listeners: []loop.Listener{{Addr: "tcp://127.0.0.1:0", Codec: cd, Accept: accept}}}
			bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
				p, q := srv.OpenTo(1), srv.OpenTo(0)
				p.Send("a", "b")
				wait(10 * time.Millisecond)
				p.Send("c")
				p.CloseWrite()
				wait(2 * time.Second)
				if q.Send("x"); q.Received() != "x" || !p.Closed() {
					t.Errorf("%s, %s: closed: %v; the other connection is not served", way, name, p.Closed())
				}
				if st := srv.Stats(); st.Panics == 0 || st.Conns != 1 || st.Accepted != st.Closed+st.Refused+1 {
					t.Errorf("%s, %s: %+v", way, name, st)
				}
			})
		}
	}
}

// If OnStart panics, Start returns that, and nothing runs.
func TestHostileErrorsInOnStart(t *testing.T) {
	for name, err := range hostileErrors() {
		synctest.Test(t, func(t *testing.T) {
			srv := &loop.Server{NumLoops: 2, Logger: zerolog.New(io.Discard), Accept: silent, OnStart: func(l *loop.Loop) {
				if l.Index() == 1 {
					panic(err)
				}
			}}
			if _, started := looptest.TryStart(t, srv); started == nil || !strings.Contains(started.Error(), "OnStart") {
				t.Errorf("%s: Start returned %v", name, started)
			}
		})
	}
}

// Hooks of the Server that panic with such errors, and OnClosing, cost one connection each.
func TestHostileErrorsInServerHooks(t *testing.T) {
	for name, err := range hostileErrors() {
		srv := &loop.Server{
			Hooks:  loop.Hooks{OnClosing: func(*loop.Conn, error) { panic(err) }, OnDrain: func(*loop.Conn) { panic(err) }},
			OnStop: func(*loop.Loop) { panic(err) },
			Accept: func(c *loop.Conn) loop.Handler {
				return script{Message: func(c *loop.Conn, msg []byte) error { return err }}
			},
		}
		bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
			p, q := srv.Open(), srv.Open()
			p.Send("x")
			if !p.Ended() || q.Ended() {
				t.Errorf("%s: ended: %v, the other: %v", name, p.Ended(), q.Ended())
			}
			if err := srv.Stop(); err != nil {
				t.Errorf("%s: the drain: %v", name, err)
			}
		})
	}
}
