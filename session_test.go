package loopwheel_test

import (
	"errors"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/looptest"
)

// What follows is README.md's second piece of code.

var errNoLogin = errors.New("no login")

func accept(c *loop.Conn) loop.Handler {
	s := &session{}
	s.login = c.AfterFunc(5*time.Second, func() { c.CloseWithError(errNoLogin) }) // dies with c
	c.OnIdle(loop.IdleWrite, 20*time.Second, func(int) { c.Send([]byte("ping")) })
	return s
}

// The fields of a session are its connection's state. They need no lock.
type session struct{ login loop.Timer }

func (s *session) OnMessage(c *loop.Conn, line []byte) error {
	s.login.Stop()
	return c.Send(line)
}

func (s *session) OnClose(c *loop.Conn, err error) { c.Log().Info().Err(err).Msg("closed") }

// The end of README.md's second piece of code.

func TestReadmeSession(t *testing.T) {
	text, err := os.ReadFile("session_test.go")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), "\n"+blocks(t, "go")[1]+"\n") {
		t.Error("README.md shows other code than this file has")
	}
	synctest.Test(t, func(t *testing.T) {
		srv := looptest.Start(t, &loop.Server{Codec: codec.Lines{}, Accept: accept})
		silent, active := srv.Open(), srv.Open()
		active.Send("me\n")
		srv.Sleep(5 * time.Second)
		if err := silent.Reason(); err != errNoLogin {
			t.Errorf("who does not log in was closed with %v", err)
		}
		srv.Sleep(15 * time.Second)
		if got := active.Received(); got != "me\nping\n" {
			t.Errorf("who logs in got %q", got)
		}
	})
}
