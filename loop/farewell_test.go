package loop_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/looptest"
)

// polite answers each line by itself and has a last word.
type polite struct {
	codec.Lines
	due bool
}

func (p *polite) New() codec.Codec { return &polite{} }

func (p *polite) Decode(data []byte) (int, []byte, error) {
	n, frame, err := p.Lines.Decode(data)
	p.due = n > 0
	return n, frame, err
}

func (p *polite) AppendReply(dst []byte) []byte {
	if p.due {
		dst = append(dst, "seen\n"...)
	}
	p.due = false
	return dst
}

func (p *polite) AppendFarewell(dst []byte, err error) []byte {
	if err == nil {
		return append(dst, "bye\n"...)
	}
	if err.Error() == "panic" {
		panic("in AppendFarewell")
	}
	return append(dst, "bye: "+err.Error()+"\n"...)
}

func politeServer(onMessage func(c *loop.Conn, msg []byte) error) *loop.Server {
	return &loop.Server{
		NumLoops:    1,
		Codec:       &polite{},
		Accept:      func(*loop.Conn) loop.Handler { return loop.HandlerFunc(onMessage) },
		IdleTimeout: time.Minute,
	}
}

// Whichever side closes, the codec has the last word, once, after all that was sent.
func TestFarewell(t *testing.T) {
	var errKick = errors.New("kicked")
	for name, test := range map[string]struct {
		end  func(srv *looptest.Server, p *looptest.Peer)
		want string
	}{
		"Close":         {func(_ *looptest.Server, p *looptest.Peer) { p.Send("close\n") }, "seen\nclosing\nbye\n"},
		"an error":      {func(_ *looptest.Server, p *looptest.Peer) { p.Send("kick\n") }, "seen\nbye: kicked\n"},
		"a panic in it": {func(_ *looptest.Server, p *looptest.Peer) { p.Send("panic\n") }, "seen\n"},
		"the timeout": {func(*looptest.Server, *looptest.Peer) {
			wait(2 * time.Minute)
		}, "bye: loop: idle timeout\n"},
		"the drain": {func(srv *looptest.Server, _ *looptest.Peer) { srv.Shutdown() }, "bye: loop: server closed\n"},
		"the peer":  {func(_ *looptest.Server, p *looptest.Peer) { p.CloseWrite() }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := looptest.Start(t, politeServer(func(c *loop.Conn, msg []byte) error {
					switch string(msg) {
					case "close":
						_ = c.Send([]byte("closing"))
						c.Close()
						c.Close()
					case "kick":
						return errKick
					case "panic":
						return errors.New("panic")
					}
					return nil
				}))
				p := srv.Open()
				test.end(srv, p)
				if got := p.Received(); got != test.want {
					t.Errorf("received %q, want %q", got, test.want)
				}
				if !p.Ended() {
					t.Error("OnClose was not called")
				}
			})
		})
	}
}

// What OnClosing may not send any more, because too much waits, does not cost what was sent before.
func TestLastWordsAtTheLimit(t *testing.T) {
	const reply = "a reply that is longer than the limit"
	var got error
	srv := &loop.Server{
		Limits: loop.Limits{MaxOutbound: 10},
		Hooks:  loop.Hooks{OnClosing: func(c *loop.Conn, _ error) { got = c.Send([]byte("bye")) }},
		Accept: func(*loop.Conn) loop.Handler {
			return loop.HandlerFunc(func(c *loop.Conn, _ []byte) error {
				_ = c.Send([]byte(reply))
				return errOwn
			})
		},
	}
	bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
		p := srv.Open()
		p.Block(0)
		p.Send("x")
		p.Unblock()
		if r := p.Received(); r != reply || p.WasReset() || !errors.Is(got, loop.ErrSlowConsumer) || !errors.Is(p.Reason(), errOwn) {
			t.Errorf("received %q, reset: %v; Send: %v; reason: %v", r, p.WasReset(), got, p.Reason())
		}
	})
}

// After CloseWrite the codec answers nothing any more, and the connection goes on reading.
func TestRepliesAfterCloseWrite(t *testing.T) {
	for name, room := range map[string]int{"output ended": 1000, "output to be ended": 3} {
		t.Run(name, func(t *testing.T) {
			var j journal
			srv := politeServer(func(c *loop.Conn, m []byte) error {
				j.add(string(m))
				_ = c.Send(m)
				c.CloseWrite()
				return nil
			})
			bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
				p := srv.Open()
				p.Block(room)
				p.Send("one\n", "two\nthree\n")
				p.Unblock()
				p.Send("four\n")
				j.expect(t, "one", "two", "three", "four")
				p.Close()
				if got := p.Received(); got != "seen\none\n" || p.Reason() != io.EOF {
					t.Errorf("received %q; reason %v", got, p.Reason())
				}
			})
		})
	}
}

// leaving ends when it reads "bye", as its protocol provides, and refuses "bad".
type leaving struct{ codec.Lines }

func (l leaving) Decode(data []byte) (int, []byte, error) {
	n, frame, err := l.Lines.Decode(data)
	switch string(frame) {
	case "bye":
		return n, nil, fmt.Errorf("goodbye: %w", codec.ErrEnd)
	case "bad":
		return n, nil, codec.ErrMalformed
	}
	return n, frame, err
}

// The end of a conversation is not bad input.
func TestProtocolEnd(t *testing.T) {
	for line, logged := range map[string]bool{"bye\n": false, "bad\n": true} {
		synctest.Test(t, func(t *testing.T) {
			var log bytes.Buffer
			srv := looptest.Start(t, &loop.Server{
				NumLoops: 1, Codec: leaving{}, Logger: zerolog.New(&log),
				Accept: func(*loop.Conn) loop.Handler { return loop.HandlerFunc(echo) },
			})
			p := srv.Open()
			p.Send(line)
			if !p.Ended() || p.Reason() == nil {
				t.Errorf("%q: ended %v, reason %v", line, p.Ended(), p.Reason())
			}
			if got := strings.Contains(log.String(), "cannot be decoded"); got != logged {
				t.Errorf("%q: the log is %s", line, log.String())
			}
		})
	}
}

// Who has only ended its output, so that OnEOF keeps the connection open, still reads: it gets the
// last words when this side closes.
func TestLastWordsBehindAHalfClose(t *testing.T) {
	srv := politeServer(func(*loop.Conn, []byte) error { return nil })
	srv.Hooks.OnClosing = func(c *loop.Conn, _ error) { _ = c.Send([]byte("closing")) }
	srv.Accept = with(func(c *loop.Conn) {
		c.OnEOF(func() { c.AfterFunc(time.Second, c.Close) })
	})
	bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
		p := srv.Open()
		p.CloseWrite()
		srv.Sleep(time.Second)
		if got := p.Received(); got != "closing\nbye\n" || !p.Ended() {
			t.Errorf("received %q, ended: %v", got, p.Ended())
		}
	})
}
