package main

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/looptest"
)

// A minute of silence takes no time in a test.
func TestEcho(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newServer("", time.Minute)
		server.Logger = zerolog.Nop()
		srv := looptest.Start(t, server)
		p := srv.Open()
		steps := []struct {
			send string
			wait time.Duration
			want string
		}{
			{"hello\nlater good", 0, "hello\n"},
			{" night\n", 2999 * time.Millisecond, ""},
			{"", time.Millisecond, "good night\n"},
			{"", 36 * time.Second, ""},
			{"", time.Second, "are you still there?\n"},
			{"yes\n", 39 * time.Second, "yes\n"},
			{"", 20 * time.Second, "are you still there?\n"},
		}
		for _, s := range steps {
			if s.send != "" {
				p.Send(s.send)
			}
			srv.Sleep(s.wait)
			if got := p.Received(); got != s.want {
				t.Errorf("%v after %q it gets %q, want %q", s.wait, s.send, got, s.want)
			}
		}
		srv.Sleep(time.Second)
		if !errors.Is(p.Reason(), loop.ErrIdle) {
			t.Errorf("closed with %v", p.Reason())
		}
	})
}
