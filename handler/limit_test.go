package handler_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/codec/websocket"
	"github.com/loopwheel/loopwheel/handler"
	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/looptest"
	"github.com/loopwheel/loopwheel/loop/looptest/wstest"
)

func TestLimitCloses(t *testing.T) {
	bubble(t, func(t *testing.T) {
		srv := startLines(t, 1, handler.Chain(echoes, handler.Limit{PerSecond: 2, Burst: 3}))
		p := srv.Open()
		p.Send("1\n2\n3\n")
		wantReceived(t, p, "1\n2\n3\n")
		testkit.Pass(500 * time.Millisecond)
		p.Send("4\n") // one token has come back
		wantReceived(t, p, "4\n")
		p.Send("5\n6\n")
		wantReceived(t, p, "")
		wantReason(t, p, handler.ErrRateLimit)
	})
}

func TestLimitDrops(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var dropped []string
		srv := startLines(t, 1, handler.Chain(echoes, handler.Limit{
			PerSecond: 1,
			Burst:     2,
			Drop:      true,
			Exceeded:  func(_ *loop.Conn, msg []byte) { dropped = append(dropped, string(msg)) },
		}))
		p, q := srv.Open(), srv.Open()
		p.Send("1\n2\n3\n4\n")
		wantReceived(t, p, "1\n2\n")
		q.Send("a\n") // has a bucket of its own
		wantReceived(t, q, "a\n")
		testkit.Pass(time.Second)
		p.Send("5\n6\n")
		wantReceived(t, p, "5\n")
		testkit.Pass(time.Hour) // fills the bucket, and does not overfill it
		p.Send("7\n8\n9\n")
		wantReceived(t, p, "7\n8\n")
		if got := strings.Join(dropped, " "); got != "3 4 6 9" {
			t.Errorf("dropped %q", got)
		}
		wantOpen(t, p)
	})
}

// The handler may answer what was too many before the connection closes.
func TestLimitFarewell(t *testing.T) {
	bubble(t, func(t *testing.T) {
		srv := startLines(t, 1, handler.Chain(echoes, handler.Limit{
			PerSecond: 1,
			Exceeded:  func(c *loop.Conn, _ []byte) { c.Send([]byte("slow down")) },
		}))
		p := srv.Open()
		p.Send("1\n2\n")
		wantReceived(t, p, "1\nslow down\n")
		wantReason(t, p, handler.ErrRateLimit)
	})
}

// Who keeps to the rate exactly is never hit, whatever the rate; who sends at twice the rate is hit
// by half.
func TestLimitRate(t *testing.T) {
	for _, rate := range []float64{0.01, 0.3, 1, 3, 7, 1000, 33333} {
		t.Run(fmt.Sprint(rate), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				srv := startLines(t, 1, handler.Chain(echoes, handler.Limit{PerSecond: rate, Burst: 1, Drop: true}))
				interval := time.Duration(math.Ceil(float64(time.Second) / rate))
				p, q := srv.Open(), srv.Open()
				for range 200 {
					p.Send("\n")
					q.Send("\n\n")
					testkit.Pass(interval)
				}
				for name, peer := range map[string]interface{ Received() string }{"at the rate": p, "at twice the rate": q} {
					if got := len(peer.Received()); got != 200 {
						t.Errorf("%s: %d of 200 passed", name, got)
					}
				}
			})
		})
	}
}

func TestLimitMisuse(t *testing.T) {
	for what, l := range map[string]handler.Limit{
		"no rate":        {},
		"negative rate":  {PerSecond: -1},
		"not a number":   {PerSecond: math.NaN()},
		"infinite rate":  {PerSecond: math.Inf(1)},
		"negative burst": {PerSecond: 1, Burst: -1},
	} {
		wantPanic(t, what, func() { l.Wrap(echoes) })
	}
}

// Extreme settings do not overflow.
func TestLimitExtremes(t *testing.T) {
	for _, l := range []handler.Limit{
		{PerSecond: 1e-300, Burst: math.MaxInt},
		{PerSecond: 1e300},
		{PerSecond: math.SmallestNonzeroFloat64},
		{PerSecond: 1e9, Burst: math.MaxInt},
	} {
		t.Run(fmt.Sprintf("%+v", l), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				srv := startLines(t, 1, handler.Chain(echoes, l))
				p := srv.Open()
				testkit.Pass(1000 * time.Hour)
				p.Send("x\n")
				wantReceived(t, p, "x\n")
				if l.PerSecond < 1 && l.Burst == 0 {
					p.Send("y\n")
					wantReason(t, p, handler.ErrRateLimit)
				}
			})
		})
	}
}

// A peer that keeps to the rate is not hit because the loop was blocked; one that does not, is.
func TestLimitAfterABlockedLoop(t *testing.T) {
	for rate, want := range map[int]error{10: nil, 30: handler.ErrRateLimit} {
		t.Run(fmt.Sprint(rate, " a second"), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				srv := startLines(t, 1, handler.Chain(echoes, handler.Limit{PerSecond: 10, Burst: 2}))
				p := srv.Open()
				_ = srv.Loops()[0].Post(func() { testkit.Block(3 * time.Second) })
				for range 3 * rate {
					testkit.Pass(time.Second / time.Duration(rate))
					p.Send("x\n")
				}
				testkit.Pass(time.Second)
				if want != nil {
					wantReason(t, p, want)
				} else if p.Closed() {
					t.Errorf("%d a second: closed: %v", rate, p.Reason())
				}
			})
		})
	}
}

// Whatever keeps us from reading excuses a peer that keeps to the rate, and one that sends three
// times as much not.
func TestLimitExcusesWhatIsNotRead(t *testing.T) {
	type pauses struct {
		c       *loop.Conn
		replies *handler.Replies
	}
	for name, pause := range map[string]func(p pauses, resumeIn time.Duration){
		"PauseRead": func(p pauses, in time.Duration) {
			p.c.PauseRead()
			p.c.AfterFunc(in, p.c.ResumeRead)
		},
		"Replies": func(p pauses, in time.Duration) {
			r := p.replies.Later()
			p.c.AfterFunc(in, func() { r.Done([]byte("x")) })
		},
		"Offload": func(p pauses, in time.Duration) {
			for i := range 16 {
				_ = loop.Offload(p.c, func(context.Context) int {
					if i == 0 {
						testkit.Block(in)
					}
					return 0
				}, func(*loop.Conn, int) {})
			}
		},
		"a block":                       func(_ pauses, in time.Duration) { testkit.Block(in) },
		"a block of a paused reader":    func(p pauses, in time.Duration) { p.c.PauseRead(); testkit.Block(in); p.c.ResumeRead() },
		"a pause that has begun before": func(p pauses, in time.Duration) { p.c.AfterFunc(in, p.c.ResumeRead) },
	} {
		for _, rate := range []struct{ perSecond, sent float64 }{{10, 10}, {10, 30}, {0.5, 0.5}, {0.5, 1.5}} {
			t.Run(fmt.Sprintf("%s, %v at %v a second", name, rate.sent, rate.perSecond), func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					var at pauses
					srv := startLines(t, 1, handler.Chain(func(c *loop.Conn) loop.Handler {
						at = pauses{c, handler.NewReplies(c, handler.RepliesConfig{MaxWaiting: 1})}
						if name == "a pause that has begun before" {
							c.PauseRead()
						}
						return loop.HandlerFunc(func(*loop.Conn, []byte) error { return nil })
					}, handler.Limit{PerSecond: rate.perSecond, Burst: 2}))
					p := srv.Open()
					const long = 12 * time.Second
					go func() { _ = srv.Loops()[0].Post(func() { pause(at, long) }) }()
					for range int(long.Seconds() * rate.sent) {
						testkit.Pass(time.Duration(float64(time.Second) / rate.sent))
						_, _ = p.Write([]byte("x\n"))
					}
					testkit.Pass(time.Second)
					if rate.sent > rate.perSecond {
						wantReason(t, p, handler.ErrRateLimit)
					} else if p.Closed() {
						t.Errorf("closed: %v", p.Reason())
					}
				})
			})
		}
	}
}

// A handler that pauses reading for each message does not raise the rate, and a peer that keeps to it
// is not limited, however long the pauses are.
func TestLimitWithPauses(t *testing.T) {
	for name, test := range map[string]struct {
		sent   float64 // a second; the limit is 10
		pause  func(rng *rand.Rand, n int) time.Duration
		atMost int // pass in 100 s; 0 means all
	}{
		"ten times the rate, short pauses": {100, func(*rand.Rand, int) time.Duration { return 45 * time.Millisecond }, 1010},
		"ten times the rate, long pauses":  {100, func(*rand.Rand, int) time.Duration { return 3 * time.Second }, 1010},
		"ten times the rate, random pauses": {100, func(rng *rand.Rand, _ int) time.Duration {
			return time.Duration(rng.Int64N(int64(200 * time.Millisecond)))
		}, 1010},
		"ten times the rate, after a long":      {100, longThenShort, 1010},
		"at the rate, short pauses":             {10, func(*rand.Rand, int) time.Duration { return 45 * time.Millisecond }, 0},
		"ten times the rate, slow after a long": {100, slowAfterLong, 1010},
		"at the rate, slow after a long":        {10, slowAfterLong, 0},
		"at the rate, random pauses": {10, func(rng *rand.Rand, _ int) time.Duration {
			return time.Duration(rng.Int64N(int64(190 * time.Millisecond)))
		}, 0},
		"at the rate, short after a long":    {10, longThenShort, 0},
		"at the rate, pauses of many a time": {10, func(_ *rand.Rand, n int) time.Duration { return time.Duration(max(0, 3-n)) * 5 * time.Second }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				rng, passed, dropped := rand.New(rand.NewPCG(testkit.Seed(t, 1), 1)), 0, 0
				srv := startLines(t, 1, handler.Chain(func(c *loop.Conn) loop.Handler {
					return loop.HandlerFunc(func(*loop.Conn, []byte) error {
						if d := test.pause(rng, passed); d > 0 {
							c.PauseRead()
							c.AfterFunc(d, c.ResumeRead)
						}
						passed++
						return nil
					})
				}, handler.Limit{PerSecond: 10, Burst: 2, Drop: true, Exceeded: func(*loop.Conn, []byte) { dropped++ }}))
				p := srv.Open()
				for range int(100 * test.sent) {
					_, _ = p.Write([]byte("x\n"))
					testkit.Pass(time.Duration(float64(time.Second) / test.sent))
				}
				if test.atMost == 0 {
					testkit.Want(t, "dropped", dropped, 0)
				} else if passed > test.atMost {
					t.Errorf("%d passed, want at most %d", passed, test.atMost)
				}
			})
		})
	}
}

// slowAfterLong takes longer for what has come in a long pause than the excuse lasts at first.
func slowAfterLong(_ *rand.Rand, n int) time.Duration {
	if n == 0 {
		return 30 * time.Second
	}
	testkit.Block(4 * time.Millisecond)
	return 0
}

func longThenShort(_ *rand.Rand, n int) time.Duration {
	if n == 0 {
		return 30 * time.Second
	}
	return 45 * time.Millisecond
}

// A peer does not save up the pauses in which it sent nothing.
func TestLimitForgetsPauses(t *testing.T) {
	bubble(t, func(t *testing.T) {
		passed := 0
		srv := startLines(t, 1, handler.Chain(func(c *loop.Conn) loop.Handler {
			return loop.HandlerFunc(func(_ *loop.Conn, line []byte) error {
				if passed++; len(line) > 0 {
					c.PauseRead()
					c.AfterFunc(500*time.Millisecond, c.ResumeRead)
				}
				return nil
			})
		}, handler.Limit{PerSecond: 10, Burst: 2, Drop: true}))
		p := srv.Open()
		for range 50 {
			p.Send("pause\n")
			testkit.Pass(2 * time.Second)
		}
		p.Send(strings.Repeat("\n", 100))
		if passed -= 50; passed > 2+5 {
			t.Errorf("%d passed at once", passed)
		}
	})
}

// What came in a long pause may wait for long behind a large burst of it.
func TestLimitExcusesBehindALargeBurst(t *testing.T) {
	bubble(t, func(t *testing.T) {
		passed := 0
		srv := startLines(t, 1, handler.Chain(func(c *loop.Conn) loop.Handler {
			return loop.HandlerFunc(func(*loop.Conn, []byte) error {
				if passed++; passed == 1 {
					c.PauseRead()
					c.AfterFunc(30*time.Second, c.ResumeRead)
				} else {
					testkit.Block(4 * time.Millisecond)
				}
				return nil
			})
		}, handler.Limit{PerSecond: 100, Burst: 300, Drop: true}))
		p := srv.Open()
		for range 6000 {
			_, _ = p.Write([]byte("x\n"))
			testkit.Pass(10 * time.Millisecond)
		}
		testkit.Want(t, "passed", passed, 6000)
	})
}

// What the codec answers counts, but for its handshake: pings of WebSocket.
func TestLimitCountsPings(t *testing.T) {
	for _, test := range []struct {
		pings, pongs int
		drop         bool
		want         error
	}{{3, 3, false, nil}, {4, 3, false, handler.ErrRateLimit}, {100, 3, true, nil}} {
		t.Run(fmt.Sprintf("%d pings, drop %v", test.pings, test.drop), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				srv := looptest.Start(t, &loop.Server{NumLoops: 1, Codec: &websocket.Codec{},
					Accept: handler.Chain(echoes, handler.Limit{PerSecond: 1, Burst: 3, Drop: test.drop})})
				p := srv.Open()
				p.Send("GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n" +
					"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n")
				p.Received()
				p.Send(strings.Repeat("\x89\x80abcd", test.pings))
				if got := strings.Count(p.Received(), "\x8a\x00"); got != test.pongs {
					t.Errorf("%d pongs, want %d", got, test.pongs)
				}
				if test.want != nil {
					wantReason(t, p, test.want)
				} else {
					wantOpen(t, p)
				}
			})
		})
	}
}

// Exceeded may do to the connection what any callback may, also for a frame that the codec answers.
func TestLimitExceededActs(t *testing.T) {
	file, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := file.Write(make([]byte, 1000)); err != nil {
		t.Fatal(err)
	}
	for name, act := range map[string]func(c *loop.Conn){
		"Send":     func(c *loop.Conn) { _ = c.Send(make([]byte, 60_000)) },
		"Writev":   func(c *loop.Conn) { _, _ = c.Writev(net.Buffers{make([]byte, 10_000), make([]byte, 10_000)}) },
		"SendFile": func(c *loop.Conn) { _ = c.SendFile(file, 0, 1000, nil) },
		"Close":    func(c *loop.Conn) { c.Close() },
		"Detach":   func(c *loop.Conn) { _, _, _ = c.Detach() },
		"NetConn": func(c *loop.Conn) {
			if nc, err := c.NetConn(); err == nil {
				_ = nc.Close()
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				exceeded := 0
				srv := looptest.Start(t, &loop.Server{NumLoops: 1, Codec: &websocket.Codec{},
					Accept: handler.Chain(echoes, handler.Limit{PerSecond: 1, Burst: 1, Drop: true, Exceeded: func(c *loop.Conn, _ []byte) {
						exceeded++
						act(c)
					}})})
				p := wstest.Open(t, srv, "/", nil)
				for range 3 {
					p.Ping("x")
				}
				srv.Sleep(time.Second)
				if exceeded == 0 {
					t.Error("Exceeded was not called")
				}
				testkit.Want(t, "panics", srv.Stats().Panics, 0)
			})
		})
	}
}
