package handler_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/handler"
	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/looptest"
)

// lines collects the lines of a log.
type lines struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

type entry struct {
	Level, Message, Remote, Reason, Msg string
	Conn, Len                           int
	Age                                 float64
}

// take returns the lines since the last call.
func (l *lines) take(t *testing.T) (entries []entry) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	for d := json.NewDecoder(&l.buf); d.More(); {
		var e entry
		if err := d.Decode(&e); err != nil {
			t.Fatal(err)
		}
		entries = append(entries, e)
	}
	return entries
}

// startLogged serves lines; "close", "fail" and "panic" end the connection.
func startLogged(t *testing.T, l handler.Log) (*looptest.Server, *lines) {
	t.Helper()
	var out lines
	h := loop.HandlerFunc(func(c *loop.Conn, msg []byte) error {
		switch string(msg) {
		case "close":
			c.Close()
		case "fail":
			return errors.New("no good")
		case "panic":
			panic("oh")
		}
		return nil
	})
	srv := looptest.Start(t, &loop.Server{
		NumLoops: 1,
		Codec:    codec.Lines{},
		Logger:   zerolog.New(&out),
		Accept:   handler.Chain(handler.Shared(h), l),
	})
	return srv, &out
}

func TestLogOpenAndClose(t *testing.T) {
	for msg, want := range map[string]struct{ level, reason string }{
		"close": {"info", "close"},
		"fail":  {"info", "no good"},
		"panic": {"error", "loop: panic: oh"},
	} {
		t.Run(msg, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				srv, out := startLogged(t, handler.Log{Level: zerolog.InfoLevel})
				p := srv.Open()
				es := out.take(t)
				if len(es) != 1 || es[0].Message != "open" || es[0].Level != "info" || es[0].Conn != 1 || es[0].Remote != p.Addr().String() {
					t.Fatalf("opening logged %+v", es)
				}
				testkit.Pass(time.Minute)
				p.Send(msg + "\n")
				es = out.take(t)
				e := es[len(es)-1] // the panic itself is logged before
				if e.Message != "closed" || e.Level != want.level || e.Reason != want.reason || e.Age != 60000 || e.Conn != 1 {
					t.Errorf("after %q: logged %+v", msg, e)
				}
			})
		})
	}
}

func TestLogMessages(t *testing.T) {
	bubble(t, func(t *testing.T) {
		srv, out := startLogged(t, handler.Log{Messages: true, MessageLevel: zerolog.WarnLevel, MaxLogged: 5})
		p := srv.Open()
		out.take(t)
		p.Send("hello, world\nx\n")
		es := out.take(t)
		if len(es) != 2 || es[0].Message != "message" || es[0].Level != "warn" || es[0].Len != 12 || es[0].Msg != "hello" || es[1].Msg != "x" {
			t.Errorf("logged %+v", es)
		}
	})
}

// The zero Log logs at debug level, and no messages; a negative MaxLogged hides what was said.
func TestLogDefaults(t *testing.T) {
	bubble(t, func(t *testing.T) {
		srv, out := startLogged(t, handler.Log{})
		srv.Open().Send("hello\n")
		if es := out.take(t); len(es) != 1 || es[0].Level != "debug" {
			t.Errorf("logged %+v", es)
		}
	})
	bubble(t, func(t *testing.T) {
		srv, out := startLogged(t, handler.Log{Messages: true, MaxLogged: -1})
		srv.Open().Send("secret\n")
		if es := out.take(t); len(es) != 2 || es[1].Msg != "" || es[1].Len != 6 {
			t.Errorf("logged %+v", es)
		}
	})
}

func TestLogRefused(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var out lines
		srv := looptest.Start(t, &loop.Server{
			Logger: zerolog.New(&out),
			Accept: handler.Chain(func(*loop.Conn) loop.Handler { return nil }, handler.Log{}),
		})
		srv.Open()
		if es := out.take(t); len(es) != 1 || es[0].Message != "refused" {
			t.Errorf("logged %+v", es)
		}
	})
}
