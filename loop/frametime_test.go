package loop_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/looptest"
)

// inParts is a codec of lines: "+x" is a part of a message, "=x" its last one or a whole message,
// and "." nothing, which comes at any time, as pings do. Each costs time.
type inParts struct {
	cost  time.Duration
	parts []byte
	begun bool
}

func (p *inParts) New() codec.Codec { return &inParts{cost: p.cost} }

func (p *inParts) Decode(data []byte) (advance int, frame []byte, err error) {
	advance, line, err := codec.Lines{}.Decode(data)
	if len(line) == 0 || err != nil {
		return advance, nil, err
	}
	if p.cost > 0 {
		testkit.Block(p.cost)
	}
	switch line[0] {
	case '+':
		p.parts, p.begun = append(p.parts, line[1:]...), true
	case '=':
		frame = append(append([]byte{}, p.parts...), line[1:]...)
		p.parts, p.begun = nil, false
	}
	return advance, frame, nil
}

func (p *inParts) AppendFrame(dst, frame []byte) ([]byte, error) {
	return append(append(append(dst, '='), frame...), '\n'), nil
}

func (p *inParts) Unfinished() (size int, ok bool) { return len(p.parts), p.begun }

// partsServer has ten seconds for a message in parts.
func partsServer(cost time.Duration) *loop.Server {
	return &loop.Server{Codec: &inParts{cost: cost}, NumLoops: 1, Timeouts: loop.Timeouts{Frame: 10 * time.Second}, Accept: accepting(nil, echo)}
}

func expectSlowFrame(t *testing.T, p *looptest.Peer, what string) {
	t.Helper()
	if !p.Ended() || !errors.Is(p.Reason(), loop.ErrSlowFrame) {
		t.Errorf("%s: ended %t, with %v; want ErrSlowFrame", what, p.Ended(), p.Reason())
	}
}

// expectSlowFrameAfter wants it neither earlier nor later.
func expectSlowFrameAfter(t *testing.T, srv *looptest.Server, p *looptest.Peer, d time.Duration, what string) {
	t.Helper()
	srv.Sleep(d - time.Millisecond)
	expectOpen(t, p, "early")
	srv.Sleep(2 * time.Millisecond)
	expectSlowFrame(t, p, what)
}

func expectOpen(t *testing.T, p *looptest.Peer, what string) {
	t.Helper()
	if p.Ended() {
		t.Errorf("%s: closed with %v", what, p.Reason())
	}
}

// Timeouts.Frame is the time of a message, not of each of its parts, whatever comes meanwhile.
func TestFrameTimeoutOfAMessageInParts(t *testing.T) {
	for name, meanwhile := range map[string]string{
		"silence": "", "nothing that counts": ".\n", "parts": "+x\n", "empty parts": "+\n",
		"pieces of parts": "x", "much of all": strings.Repeat("+x\n.\n+\n", 100),
	} {
		for _, first := range []string{"+begin\n", "+\n", "=whole\n+begin\n"} {
			t.Run(name+" after "+first, func(t *testing.T) {
				bubble(t, partsServer(0), func(t *testing.T, srv *looptest.Server) {
					p := srv.Open()
					p.Send(first)
					for range 9 {
						srv.Sleep(time.Second)
						p.Send(meanwhile)
					}
					expectSlowFrameAfter(t, srv, p, time.Second, "after 10 s")
				})
			})
		}
	}
}

// Who ends messages in time is not late, and the time of the next one begins when that does.
func TestFrameTimeoutOfMessagesThatEnd(t *testing.T) {
	bubble(t, partsServer(0), func(t *testing.T, srv *looptest.Server) {
		p := srv.Open()
		for range 5 {
			p.Send("+a\n")
			srv.Sleep(9 * time.Second)
			p.Send("=b\n+c\n")
			srv.Sleep(9 * time.Second)
			p.Send(".\n=d\n.\n")
		}
		srv.Sleep(time.Hour)
		expectOpen(t, p, "all messages were whole")
		if got := p.Received(); got != strings.Repeat("=ab\n=cd\n", 5) {
			t.Errorf("received %q", got)
		}
	})
}

// pauseNowAndThen has p's connection read for eight seconds, in four parts, with a pause after
// each, in which something happens.
func pauseNowAndThen(srv *looptest.Server, p *looptest.Peer, within func()) {
	for range 4 {
		srv.Sleep(2 * time.Second)
		tell(srv, p, (*loop.Conn).PauseRead)
		within()
		srv.Sleep(time.Minute)
		tell(srv, p, (*loop.Conn).ResumeRead)
	}
}

// While a connection is not read its time stands still: a pause is not the peer's fault, and no
// number of pauses gives it more.
func TestFrameTimeoutStandsStill(t *testing.T) {
	for name, rest := range map[string]string{"a message": "+a\n", "a frame": "+a"} {
		t.Run(name, func(t *testing.T) {
			bubble(t, partsServer(0), func(t *testing.T, srv *looptest.Server) {
				p := srv.Open()
				p.Send(rest)
				pauseNowAndThen(srv, p, func() {})
				expectSlowFrameAfter(t, srv, p, 2*time.Second, "after 10 s that were read")
			})
		})
	}
}

// The time that a message had taken before a pause is not the next one's.
func TestFrameTimeoutOfTheNextMessageAfterAPause(t *testing.T) {
	srv := partsServer(0)
	srv.Accept = accepting(nil, func(c *loop.Conn, _ []byte) error { c.PauseRead(); return nil })
	bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
		p := srv.Open()
		p.Send("+a\n")
		srv.Sleep(9 * time.Second)
		p.Send("=b\n+c\n")
		srv.Sleep(time.Minute)
		tell(srv, p, (*loop.Conn).ResumeRead)
		expectSlowFrameAfter(t, srv, p, 10*time.Second, "after 10 s")
	})
}

// A flood that the loop never comes to the end of ends with the time, too: that its input waits for
// a share of the loop, or in the socket, is its own doing.
func TestFrameTimeoutOfAFlood(t *testing.T) {
	bubble(t, partsServer(time.Millisecond), func(t *testing.T, srv *looptest.Server) {
		began := time.Now()
		p := srv.Open()
		for range 30 { // seconds
			p.Send(strings.Repeat(".\n", 100) + "+x\n" + strings.Repeat(".\n", 900))
			if srv.Sleep(time.Second); p.Ended() {
				break
			}
		}
		expectSlowFrame(t, p, "a flood")
		if d := time.Since(began); d > 11*time.Second {
			t.Errorf("closed after %v", d)
		}
	})
	bubble(t, partsServer(time.Millisecond), func(t *testing.T, srv *looptest.Server) {
		p := srv.Open()
		p.Send("+x\n" + strings.Repeat(".\n", 30_000)) // at once
		srv.Sleep(11 * time.Second)
		expectSlowFrame(t, p, "a flood that has come")
	})
}

// Input that waits for its share of a flood may contain the end of the frame.
func TestFrameTimeoutBeforeTheEndInTheFlood(t *testing.T) {
	bubble(t, partsServer(time.Millisecond), func(t *testing.T, srv *looptest.Server) {
		p := srv.Open()
		p.Send("+a\n" + strings.Repeat(".\n", 10_003) + "=b\n")
		srv.Sleep(11 * time.Second)
		expectOpen(t, p, "its end was there")
	})
}

// Nor is it cut if it owes nothing.
func TestFrameTimeoutOfAFloodOfNothing(t *testing.T) {
	bubble(t, partsServer(time.Millisecond), func(t *testing.T, srv *looptest.Server) {
		p := srv.Open()
		p.Send("+x\n=y\n" + strings.Repeat(".\n", 30_000) + "=z\n")
		srv.Sleep(time.Minute)
		expectOpen(t, p, "each message had ended")
		if got := p.Received(); got != "=xy\n=z\n" {
			t.Errorf("received %q", got)
		}
	})
}

// A peer that does not take its output is not read: that is for other limits to end.
func TestFrameTimeoutHeldBack(t *testing.T) {
	bubble(t, partsServer(0), func(t *testing.T, srv *looptest.Server) {
		p := srv.Open()
		p.Block(0)
		p.Send("+a\n")
		tell(srv, p, func(c *loop.Conn) { _ = c.Send(make([]byte, 300<<10)) })
		srv.Sleep(time.Second)
		p.Send(".\n")
		srv.Sleep(time.Minute)
		p.Unblock()
		expectSlowFrameAfter(t, srv, p, 9*time.Second, "after 10 s that were read")
	})
}

// So it does for one that is held back by what follows its jobs, while a message had begun.
func TestFrameTimeoutHeldBackByJobs(t *testing.T) {
	srv := partsServer(0)
	srv.Accept = accepting(nil, func(c *loop.Conn, _ []byte) error {
		return loop.Offload(c, func(context.Context) int { testkit.Block(time.Second); return 300 << 10 },
			func(c *loop.Conn, n int) { _ = c.Send(make([]byte, n)) })
	})
	bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
		p := srv.Open()
		p.Block(0)
		p.Send("=job\n+a\n")
		srv.Sleep(time.Minute)
		p.Unblock()
		expectSlowFrameAfter(t, srv, p, 9*time.Second, "after 10 s that were read")
	})
}

// The frame time also stops while many jobs are pending, whichever code has started them.
func TestFrameTimeoutOfWhoWaitsForJobs(t *testing.T) {
	bubble(t, partsServer(0), func(t *testing.T, srv *looptest.Server) {
		p := srv.Open()
		p.Send("+a\n")
		tell(srv, p, func(c *loop.Conn) {
			for range 16 { // half of them is a minute
				_ = loop.Offload(c, func(context.Context) int { testkit.Block(7500 * time.Millisecond); return 0 }, func(*loop.Conn, int) {})
			}
		})
		srv.Sleep(time.Minute)
		expectSlowFrameAfter(t, srv, p, 10*time.Second, "after 10 s that were read")
	})
}

// Pauses give a record of TLS no more time, whether something of it comes in them or not.
func TestFrameTimeoutOfARecordStandsStill(t *testing.T) {
	for _, within := range []string{"", "x"} {
		srv := partsServer(0)
		srv.TLS = serverTLS()
		bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
			p := srv.OpenTLS(nil)
			p.Raw([]byte("\x17\x03\x03\x40\x00"))
			pauseNowAndThen(srv, p, func() { p.Raw([]byte(within)) })
			expectSlowFrameAfter(t, srv, p, 2*time.Second, "after 10 s that were read")
			p.Hangup()
		})
	}
}

// busy keeps the loop in one turn until d has passed: what comes meanwhile waits after the timers
// that are due then.
func busy(srv *looptest.Server, d time.Duration) {
	srv.Do(0, func(l *loop.Loop) { _ = l.Post(func() { testkit.Block(d) }) })
}

// What came in time is not late because the loop was, also if it takes the loop some time, and
// whatever came before.
func TestFrameTimeoutOfALateLoop(t *testing.T) {
	bubble(t, partsServer(500*time.Millisecond), func(t *testing.T, srv *looptest.Server) {
		ends, slow, goesOn := srv.Open(), srv.Open(), srv.Open()
		for _, p := range []*looptest.Peer{ends, slow, goesOn} {
			p.Send("+a\n")
			srv.Sleep(time.Second)
		}
		srv.Sleep(5 * time.Second)
		busy(srv, time.Minute)
		ends.Send(strings.Repeat("+"+strings.Repeat("b", 20_000)+"\n", 20), "=c\n")
		goesOn.Send("+b\n")
		srv.Sleep(61 * time.Second)
		expectSlowFrame(t, slow, "nothing had come")
		srv.Sleep(20 * time.Second)
		expectOpen(t, ends, "its message had come")
		expectSlowFrame(t, goesOn, "the end did not come")
	})
	bubble(t, partsServer(0), func(t *testing.T, srv *looptest.Server) {
		p, other := srv.Open(), srv.Open()
		tell(srv, other, func(c *loop.Conn) { c.SetCodec(&inParts{cost: time.Minute}) })
		p.Send("+a\n", "+b\n")
		srv.Sleep(9 * time.Second)
		busy(srv, 2*time.Second)
		other.Send("=x\n") // a minute, and the time is over again
		p.Send("=c\n")
		srv.Sleep(2 * time.Minute)
		expectOpen(t, p, "its message had come")
	})
}

// What the codec held has gone with it.
func TestFrameTimeoutAndAnotherCodec(t *testing.T) {
	bubble(t, partsServer(0), func(t *testing.T, srv *looptest.Server) {
		p, a, b := srv.Open(), srv.Open(), srv.Open()
		p.Send("+a\n")
		a.Send("+a\n")
		tell(srv, p, func(c *loop.Conn) { c.SetCodec(codec.Lines{}) })
		tell(srv, a, func(ca *loop.Conn) {
			for cb := range ca.Loop().Conns() {
				if cb.RemoteAddr() == b.Addr() {
					loop.Pipe(ca, cb, loop.PipeConfig{})
				}
			}
		})
		srv.Sleep(time.Hour)
		expectOpen(t, p, "another codec")
		expectOpen(t, a, "a pipe")
		p.Send("hel")
		srv.Sleep(11 * time.Second)
		expectSlowFrame(t, p, "a frame of the other codec")
	})
}

// What a codec holds of a message is input that is kept.
func TestBufferedCountsParts(t *testing.T) {
	bubble(t, partsServer(0), func(t *testing.T, srv *looptest.Server) {
		p := srv.Open()
		for _, step := range []struct {
			send string
			want int
		}{{"+abc\n", 3}, {"+de\n+", 6}, {"f\n", 6}, {"=\n", 0}, {"=x\n", 0}} {
			p.Send(step.send)
			tell(srv, p, func(c *loop.Conn) {
				if got := c.Info().Buffered; got != step.want {
					t.Errorf("after %q: %d bytes, want %d", step.send, got, step.want)
				}
			})
		}
	})
}
