package looptest_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/looptest"
)

// What a server that dials does is tested with the other side in hand.
func ExampleServer_Backend() { _ = testAsksBackend }

func testAsksBackend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dialer := loop.Dialer{Codec: codec.Lines{}, Timeout: 3 * time.Second}
		srv := looptest.Start(t, &loop.Server{OnStart: func(l *loop.Loop) {
			l.AfterFunc(time.Second, func() {
				dialer.Dial(l, "tcp://db.example:5432", func(c *loop.Conn, err error) loop.Handler {
					if err != nil {
						t.Error(err)
						return nil
					}
					_ = c.Send([]byte("select 1"))
					return loop.HandlerFunc(echo)
				})
			})
		}})
		db := srv.Backend("tcp", "db.example:5432")
		srv.Sleep(time.Second)
		if got := db.Accept().Received(); got != "select 1\n" {
			t.Errorf("the database got %q", got)
		}
	})
}

// Datagrams are lost and come twice, the same ones in each run.
func ExampleServer_SetWeather() { _ = testInTheRain }

func testInTheRain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := looptest.Start(t, &loop.Server{
			Addr:   "udp://127.0.0.1:0",
			Accept: func(*loop.Conn) loop.Handler { return loop.HandlerFunc(echo) },
		})
		p := srv.OpenUDP(0)
		srv.SetWeather(looptest.Weather{Lost: 30, Duplicated: 10, Seed: 1})
		for range 100 {
			p.Send("hello")
		}
		if n := len(p.Received()); n == 0 || n == 100 {
			t.Errorf("%d of 100 were answered", n)
		}
		if err := srv.Stop(); err != nil {
			t.Error(err)
		}
	})
}

// The examples that are tests pass.
func TestExamples(t *testing.T) {
	t.Run("backend", testAsksBackend)
	t.Run("weather", testInTheRain)
}
