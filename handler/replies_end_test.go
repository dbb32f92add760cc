package handler_test

import (
	"errors"
	"io"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/handler"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/looptest"
)

// startPatient is startAsking for peers that end their output after their requests.
func startPatient(t *testing.T) *looptest.Server {
	var srv *looptest.Server
	accept := func(c *loop.Conn) loop.Handler {
		a := handler.NewReplies(c, handler.RepliesConfig{})
		c.OnEOF(func() { a.CloseAfter(io.EOF) })
		return loop.HandlerFunc(func(c *loop.Conn, msg []byte) error {
			switch string(msg) {
			case "later":
				answer := a.Later()
				c.AfterFunc(time.Second, func() { answer.Done([]byte("later\n")) })
			case "never":
				a.Later()
			case "other loop":
				return a.RunOn(srv.Loops()[1-c.Loop().Index()], func(dst []byte) []byte { return append(dst, "other loop\n"...) })
			case "bye":
				a.CloseAfter(errBye)
			default:
				return a.Write(append(msg, '\n'))
			}
			return nil
		})
	}
	srv = startLines(t, 2, accept)
	return srv
}

var errBye = errors.New("bye")

// A peer that ends its output after its requests gets all answers, and then the end.
func TestRepliesBehindTheEnd(t *testing.T) {
	bubble(t, func(t *testing.T) {
		srv := startPatient(t)
		resume := srv.Stall(1)
		p := srv.Open() // on loop 0
		p.Send("now\nother loop\nlater\nother loop\nnow\n")
		p.CloseWrite()
		wantReceived(t, p, "now\n")
		wantOpen(t, p)
		resume()
		wantReceived(t, p, "other loop\n")
		wantOpen(t, p)
		srv.Sleep(time.Second)
		wantReceived(t, p, "later\nother loop\nnow\n")
		wantReason(t, p, io.EOF)
		if p.WasReset() {
			t.Error("the connection was reset")
		}

		q := srv.Open()
		q.CloseWrite()
		wantReason(t, q, io.EOF) // it has asked nothing
	})
}

// The peer that does not take its answers at once gets them, too; one whose answer never comes, or
// who is gone altogether when it comes, costs no more than the idle timeout.
func TestRepliesBehindTheEndOfOthers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		srv := startPatient(t)
		p := srv.Open()
		p.Block(0)
		p.Send("now\nlater\nbye\n", "never\n")
		srv.Sleep(2 * time.Second)
		p.Unblock()
		wantReceived(t, p, "now\nlater\n")
		wantOpen(t, p) // what was asked after the last one is waited for as well
		p.Reset()
		if !p.Ended() {
			t.Error("a reset does not end it")
		}

		q := srv.Open()
		q.Send("later\nbye\n", "now\n")
		srv.Sleep(time.Second)
		wantReceived(t, q, "later\nnow\n")
		wantReason(t, q, errBye)
	})
}
