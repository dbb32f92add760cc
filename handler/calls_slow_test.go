package handler_test

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/handler"
	"github.com/loopwheel/loopwheel/internal/listening"
	"github.com/loopwheel/loopwheel/loop"
)

// twoThirds answers two of three questions of 8 bytes, by TCP.
func twoThirds(t *testing.T) net.Listener {
	t.Helper()
	return listening.TCP(t, func(c net.Conn) {
		in, n := make([]byte, 8<<10), 0
		for {
			k, err := io.ReadAtLeast(c, in, 8)
			if err != nil {
				return
			}
			if _, err := io.ReadFull(c, in[k:k+(8-k%8)%8]); err != nil {
				return
			}
			var out []byte
			for at := 0; at < k; at += 8 {
				if n++; n%3 != 0 {
					out = append(out, in[at:at+8]...)
				}
			}
			if _, err := c.Write(out); err != nil {
				return
			}
		}
	})
}

// Calls over 8 connections, a third of which is never answered: each ends once, none before its
// time, and nothing is allocated for them.
func TestCallsByTheMillion(t *testing.T) {
	total := 30_000
	switch slow := os.Getenv("LOOPWHEEL_SLOW") != ""; {
	case slow && raceEnabled: // a million take minutes then, on a machine that is busy
		total = 100_000
	case slow:
		total = 1_000_000
	}
	const conns, under, timeout = 8, 2000, 200 * time.Millisecond
	ln := twoThirds(t)
	srv := &loop.Server{NumLoops: 2, BlockedAfter: 10 * time.Second}
	ctx, cancel := context.WithCancel(context.Background())
	if err := srv.Start(ctx); err != nil {
		t.Fatal(err)
	}
	type tally struct{ begun, answered, late, early, other int }
	tallies := make(chan tally, conns)
	for i := range conns {
		var s tally
		loop.Dialer{Codec: codec.Fixed{Size: 8}}.Dial(srv.Loops()[i%2], "tcp://"+ln.Addr().String(), func(c *loop.Conn, err error) loop.Handler {
			if err != nil {
				t.Error(err)
				return nil
			}
			calls := handler.NewCalls[uint64](c, handler.CallLimits{})
			msg := make([]byte, 8)
			var next func()
			ended := func(begun time.Time, id *uint64) func(uint64, error) {
				return func(answer uint64, err error) {
					switch {
					case err == nil && answer == *id:
						s.answered++
					case errors.Is(err, handler.ErrCallTimeout) && time.Since(begun) >= timeout:
						s.late++
					case errors.Is(err, handler.ErrCallTimeout):
						s.early++
					default:
						s.other++
					}
					if next(); s.begun == total/conns && calls.Stats().Pending == 0 {
						tallies <- s
					}
				}
			}
			next = func() {
				if s.begun == total/conns {
					return
				}
				s.begun++
				id := new(uint64)
				if *id, err = calls.Begin(timeout, ended(time.Now(), id)); err != nil {
					t.Error(err)
				}
				binary.BigEndian.PutUint64(msg, *id)
				if err := c.Send(msg); err != nil {
					t.Error(err)
				}
			}
			c.AfterFunc(0, func() {
				for range under {
					next()
				}
			})
			return loop.HandlerFunc(func(_ *loop.Conn, msg []byte) error {
				id := binary.BigEndian.Uint64(msg)
				calls.Answer(id, id)
				return nil
			})
		})
	}
	var sum tally
	for range conns {
		select {
		case s := <-tallies:
			sum.begun += s.begun
			sum.answered += s.answered
			sum.late += s.late
			sum.early += s.early
			sum.other += s.other
		case <-time.After(2 * time.Minute):
			t.Fatal("calls that do not end")
		}
	}
	t.Logf("%+v", sum)
	if ended := sum.answered + sum.late; ended != sum.begun || sum.early+sum.other > 0 || sum.late < sum.begun/4 {
		t.Errorf("%+v", sum)
	}
	cancel()
	if err := srv.Wait(); err != nil {
		t.Error(err)
	}
}
