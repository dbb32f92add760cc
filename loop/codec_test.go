package loop_test

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/looptest"
)

// odd is a codec of single bytes that can be told to do odd things.
type odd struct {
	append func(dst, frame []byte) ([]byte, error)
	decode func(data []byte) (int, []byte, error)
	reply  func(dst []byte) []byte
}

func (o odd) Decode(data []byte) (int, []byte, error) {
	if o.decode != nil {
		return o.decode(data)
	}
	return 1, data[:1], nil
}

func (o odd) AppendFrame(dst, frame []byte) ([]byte, error) {
	if o.append != nil {
		return o.append(dst, frame)
	}
	return append(dst, frame...), nil
}

// replying is odd as a Responder.
type replying struct{ *odd }

func (r replying) AppendReply(dst []byte) []byte { return r.reply(dst) }

// An error of AppendFrame sends nothing, whatever the codec returns with it, and closes nothing.
func TestAppendFrameErrorSendsNothing(t *testing.T) {
	no := errors.New("no")
	for name, f := range map[string]func(dst, frame []byte) ([]byte, error){
		"dst":    func(dst, _ []byte) ([]byte, error) { return dst, no },
		"nil":    func(dst, _ []byte) ([]byte, error) { return nil, no },
		"longer": func(dst, frame []byte) ([]byte, error) { return append(dst, "half a frame"...), no },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, &loop.Server{Codec: odd{append: f}}, func(t *testing.T, srv *looptest.Server) {
				p := srv.Open()
				tell(srv, p, func(c *loop.Conn) {
					for _, before := range []string{"", "before "} {
						c.Write([]byte(before))
						if err := c.Send([]byte("x")); !errors.Is(err, no) {
							t.Errorf("Send: %v", err)
						}
					}
					c.Write([]byte("after"))
				})
				if got := p.Received(); got != "before after" || p.Ended() {
					t.Errorf("received %q, ended %v", got, p.Ended())
				}
			})
		})
	}
}

// A codec may return any slice that begins with dst: a clipped one must not get back to the pool
// while it waits.
func TestAppendFrameClips(t *testing.T) {
	clip := odd{append: func(dst, frame []byte) ([]byte, error) { return slices.Clip(append(dst, frame...)), nil }}
	bubble(t, &loop.Server{Codec: clip}, func(t *testing.T, srv *looptest.Server) {
		p, q := srv.Open(), srv.Open()
		p.Block(0)
		tell(srv, p, func(c *loop.Conn) { c.Send(bytes.Repeat([]byte("p"), 2000)) })
		q.Block(0)
		tell(srv, q, func(c *loop.Conn) { c.Send(bytes.Repeat([]byte("q"), 2000)) })
		p.Unblock()
		q.Unblock()
		if got := p.Received(); got != strings.Repeat("p", 2000) {
			t.Errorf("p received %d bytes, beginning with %.10q", len(got), got)
		}
		if got := q.Received(); got != strings.Repeat("q", 2000) {
			t.Errorf("q received %d bytes, beginning with %.10q", len(got), got)
		}
	})
}

// Replies count as output: a peer that asks and never reads is held back, and gets all of them when
// it reads after all.
func TestRepliesAreLimited(t *testing.T) {
	pong := replying{&odd{reply: func(dst []byte) []byte { return append(dst, "pong"...) }}}
	bubble(t, &loop.Server{Codec: pong, Limits: loop.Limits{MaxOutbound: 1000}}, func(t *testing.T, srv *looptest.Server) {
		p := srv.Open()
		p.Block(0)
		for range 300 {
			p.Send(strings.Repeat("?", 100))
		}
		answered := srv.Stats().Messages
		if answered > 1000 || srv.Stats().HeldBack != 1 || p.Ended() {
			t.Errorf("%d messages were answered, held back %d times; ended with %v", answered, srv.Stats().HeldBack, p.Reason())
		}
		if p.Unblock(); srv.Stats().Messages <= answered || len(p.Received()) < 1000 {
			t.Errorf("%d messages were answered, and %d before the peer read", srv.Stats().Messages, answered)
		}
	})
}

// A full output closes nobody for whom the codec has nothing to say.
func TestNoReplyToASlowConsumer(t *testing.T) {
	mute := replying{&odd{reply: func(dst []byte) []byte { return dst }}}
	bubble(t, &loop.Server{Codec: mute, Limits: loop.Limits{MaxOutbound: 10}}, func(t *testing.T, srv *looptest.Server) {
		p := srv.Open()
		p.Block(0)
		send(srv, p, 100)
		if p.Send("abc"); p.Ended() {
			t.Errorf("closed with %v", p.Reason())
		}
		p.Unblock()
	})
}

// Replies are sent for what is less than a frame, before the frame they come with, and before the
// end by an error.
func TestReplies(t *testing.T) {
	broken := errors.New("broken")
	c := &odd{}
	said := ""
	c.reply = func(dst []byte) []byte { dst = append(dst, said...); said = ""; return dst }
	c.decode = func(data []byte) (int, []byte, error) {
		said = "[" + string(data) + "]"
		switch data[0] {
		case 'w':
			return 0, nil, nil
		case 's':
			return 1, nil, nil
		case 'e':
			return 0, nil, broken
		}
		return 1, data[:1], nil
	}
	srv := &loop.Server{Codec: replying{c}, Accept: func(*loop.Conn) loop.Handler { return loop.HandlerFunc(echo) }}
	bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
		p := srv.Open()
		for _, x := range [][2]string{{"w", "[w]"}} {
			if p.Send(x[0]); p.Received() != x[1] {
				t.Errorf("after %q not %q", x[0], x[1])
			}
		}
		q := srv.Open()
		q.Send("sfe")
		if got := q.Received(); got != "[sfe][fe]f[e]" || !errors.Is(q.Reason(), broken) || q.WasReset() {
			t.Errorf("received %q, reason %v, reset %v", got, q.Reason(), q.WasReset())
		}
	})
}

// What follows a message that changes the codec is decoded by the new one, in the same packet too.
func TestSetCodecInOnMessage(t *testing.T) {
	var j *journal
	srv := &loop.Server{Codec: codec.Lines{}, Accept: func(*loop.Conn) loop.Handler {
		return script{Message: func(c *loop.Conn, msg []byte) error {
			j.add(string(msg))
			switch string(msg) {
			case "binary":
				c.SetCodec(codec.Length{Size: 1})
				if got, want := c.Codec(), codec.Codec(codec.Length{Size: 1}); got != want {
					t.Errorf("Codec is %#v after SetCodec, want %#v", got, want) // Group compares them
				}
				return c.Send([]byte("ok"))
			case "raw":
				c.SetCodec(nil)
			}
			return nil
		}}
	}}
	bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
		j = newJournal()
		whole := "a\nbinary\n\x01b\x03raw\n\x00"
		p := srv.Open()
		p.Send(whole)
		if got := p.Received(); got != "\x02ok" {
			t.Errorf("the answer is %q, not framed by the new codec", got)
		}
		j.expect(t, "a", "binary", "b", "raw", "\n\x00")
		j.entries = nil
		q := srv.Open()
		for _, b := range strings.Split(whole, "") {
			q.Send(b)
		}
		j.expect(t, "a", "binary", "b", "raw", "\n", "\x00")
	})
}

// A codec that is set outside of OnMessage decodes what was less than a frame anew, after the
// callback.
func TestSetCodecFromATimer(t *testing.T) {
	var j *journal
	srv := &loop.Server{Codec: codec.Lines{}, Accept: func(c *loop.Conn) loop.Handler {
		c.AfterFunc(time.Second, func() {
			c.SetCodec(codec.Length{Size: 1})
			j.add("set")
		})
		return script{Message: func(_ *loop.Conn, msg []byte) error { j.add(string(msg)); return nil }}
	}}
	bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
		j = newJournal()
		p := srv.Open()
		p.Send("\x01a\x02bb\x03c")
		wait(time.Minute)
		j.expect(t, "set", "a", "bb")
		p.Send("cc")
		j.expect(t, "set", "a", "bb", "ccc")
	})
}

// counting is a Stateful codec whose frames carry their number.
type counting struct {
	odd
	n int
}

func (*counting) New() codec.Codec { return new(counting) }

func (c *counting) AppendFrame(dst, frame []byte) ([]byte, error) {
	c.n++
	return append(dst, byte('0'+c.n)), nil
}

func TestStatefulCodecBelongsToItsConnection(t *testing.T) {
	srv := &loop.Server{Codec: new(counting), Accept: func(*loop.Conn) loop.Handler { return loop.HandlerFunc(echo) }}
	bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
		p, q := srv.Open(), srv.Open()
		p.Send("xx")
		q.Send("x")
		p.Send("x")
		if a, b := p.Received(), q.Received(); a != "123" || b != "1" {
			t.Errorf("received %q and %q", a, b)
		}
		tell(srv, p, func(c *loop.Conn) {
			own, ok := c.Codec().(*counting)
			if !ok || own.n != 3 {
				t.Errorf("Codec is %v, not the connection's own", c.Codec())
			}
			c.SetCodec(own)
			if c.Codec() == codec.Codec(own) {
				t.Error("SetCodec did not make a new one")
			}
		})
	})
}

func TestCodecErrorsCloseAndAreLogged(t *testing.T) {
	panicky := odd{decode: func([]byte) (int, []byte, error) { panic("codec") }}
	greedy := odd{decode: func(data []byte) (int, []byte, error) { return len(data) + 1, data, nil }}
	for _, c := range []struct {
		name  string
		codec codec.Codec
		input string
		want  error
	}{
		{"too long", codec.Lines{Max: 3}, "abcdef", codec.ErrTooLong},
		{"malformed", codec.Length{Size: 1, Inclusive: true}, "\x00", codec.ErrMalformed},
		{"contract", greedy, "x", codec.ErrContract},
		{"panic", panicky, "x", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			var log bytes.Buffer
			srv := &loop.Server{Codec: c.codec, Logger: zerolog.New(&log)}
			var seen error
			srv.Accept = func(*loop.Conn) loop.Handler { return script{Close: func(_ *loop.Conn, err error) { seen = err }} }
			bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
				p := srv.Open()
				p.Send(c.input)
				var pe *loop.PanicError
				if c.want != nil && !errors.Is(seen, c.want) || c.want == nil && !errors.As(seen, &pe) {
					t.Errorf("OnClose got %v", seen)
				}
				if !p.Closed() || !strings.Contains(log.String(), `"conn":1`) {
					t.Errorf("closed %v, log %q", p.Closed(), log.String())
				}
			})
		})
	}
}

// resuming is a Resumer that notes from where it was asked to go on.
type resuming struct {
	odd
	from *[]int
}

func (r resuming) DecodeFrom(data []byte, seen int) (int, []byte, error) {
	*r.from = append(*r.from, seen)
	return r.Decode(data)
}

func TestResumerIsToldWhatWasSeen(t *testing.T) {
	var from []int
	c := resuming{from: &from}
	c.decode = func(data []byte) (int, []byte, error) {
		if i := bytes.IndexByte(data, '.'); i >= 0 {
			return i + 1, data[:i], nil
		}
		return 0, nil, nil
	}
	bubble(t, &loop.Server{Codec: c}, func(t *testing.T, srv *looptest.Server) {
		srv.Open().Send("abc", "de", "f", ".")
		if !slices.Equal(from, []int{3, 5, 6}) {
			t.Errorf("asked to go on from %v", from)
		}
	})
}

// patient is lines. At "auth" it waits for a job, and consumes nothing before that is done.
type patient struct {
	lines        codec.Lines
	peer         *codec.Peer
	waits, asked bool
}

func (*patient) New() codec.Codec                              { return new(patient) }
func (*patient) Opening() error                                { return nil }
func (*patient) Opened() error                                 { return nil }
func (a *patient) AppendFrame(dst, msg []byte) ([]byte, error) { return a.lines.AppendFrame(dst, msg) }

func (a *patient) Open(dst []byte, peer codec.Peer) ([]byte, time.Duration, error) {
	a.peer = &peer
	return dst, 0, nil
}

func (a *patient) Decode(data []byte) (int, []byte, error) {
	if a.waits {
		return 0, nil, errors.New("decoded while it waits")
	}
	n, line, err := a.lines.Decode(data)
	if string(line) == "auth" && !a.asked {
		a.asked, a.waits = true, true
		return 0, nil, a.peer.Await(func(context.Context) {}, func() error { a.waits = false; return nil })
	}
	return n, line, err
}

// While a codec waits for its job nothing is decoded, and then all that has come, in whatever
// pieces.
func TestAwait(t *testing.T) {
	for name, test := range map[string]struct {
		codec  codec.Codec
		pieces []string
	}{
		"at once":            {&patient{}, []string{"auth\none\ntwo\n"}},
		"in pieces":          {&patient{}, []string{"au", "th\none\n" + strings.Repeat("x", 1000), "\ntwo\n"}},
		"nothing behind it":  {&patient{}, []string{"auth\n"}},
		"in a stack":         {codec.Stack{Outer: codec.Delimiter{Delim: "|"}, Inner: &patient{}}, []string{"auth\none\n", "two\n|three\n|"}},
		"in a stack, late":   {codec.Stack{Outer: codec.Delimiter{Delim: "|"}, Inner: &patient{}}, []string{"au", "th\none\n|two\n", "three\n|"}},
		"alone in the stack": {codec.Stack{Outer: codec.Delimiter{Delim: "|"}, Inner: &patient{}}, []string{"auth\n|"}},
		"in two stacks":      {codec.Stack{Outer: codec.Delimiter{Delim: "|"}, Inner: codec.Stack{Outer: codec.Delimiter{Delim: "~"}, Inner: &patient{}}}, []string{"auth\none\n~two\n~|three\n~|"}},
		"in stacks outside":  {codec.Stack{Outer: codec.Stack{Outer: codec.Delimiter{Delim: "|"}, Inner: codec.Delimiter{Delim: "~"}}, Inner: &patient{}}, []string{"auth\none\n~two\n~|three\n~|"}},
		"in the outer stack": {codec.Stack{Outer: codec.Stack{Outer: codec.Delimiter{Delim: "|"}, Inner: &patient{}}, Inner: codec.Raw{}}, []string{"one\nauth\ntwo\n|three\n|"}},
	} {
		t.Run(name, func(t *testing.T) {
			var got strings.Builder
			srv := &loop.Server{Codec: test.codec, Accept: accepting(nil, func(_ *loop.Conn, msg []byte) error {
				got.Write(append(msg, '\n'))
				return nil
			})}
			bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
				p := srv.Open()
				want := strings.NewReplacer("|", "", "~", "").Replace(strings.Join(test.pieces, ""))
				for _, piece := range test.pieces {
					p.Send(piece)
				}
				wait(time.Second)
				if p.Closed() || got.String() != want {
					t.Errorf("messages %.40q, want %.40q; closed: %v", got.String(), want, p.Closed())
				}
			})
		})
	}
}

// After a pause the last frame of a Stack's Outer is decoded to its end.
func TestStackAfterAPause(t *testing.T) {
	var got []string
	srv := &loop.Server{Codec: codec.Stack{Outer: codec.Delimiter{Delim: "|"}, Inner: codec.Lines{}}, Accept: accepting(nil, func(c *loop.Conn, msg []byte) error {
		if got = append(got, string(msg)); len(got) == 1 {
			c.PauseRead()
			c.AfterFunc(time.Second, c.ResumeRead)
		}
		return nil
	})}
	bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
		srv.Open().Send("a\nb\n|c\nd\ne\n|")
		wait(2 * time.Second)
		if len(got) != 5 {
			t.Errorf("messages %q, want a to e", got)
		}
	})
}

// A session of UDP has no codec, whatever an Accept that it shares with TCP sets: nothing else that
// asks for the codec frames for it either.
func TestSetCodecOfUDP(t *testing.T) {
	sessions := 0
	srv := &loop.Server{Listeners: []loop.Listener{{Addr: "udp://127.0.0.1:0"}}, Accept: with(func(c *loop.Conn) {
		sessions++
		c.SetCodec(codec.Lines{})
		if _, ok := c.Codec().(codec.Raw); !ok {
			t.Errorf("the codec is %T, want codec.Raw", c.Codec())
		}
	})}
	bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
		srv.OpenUDP(1).Send("hi")
		testkit.Want(t, "sessions", sessions, 1)
	})
}

// dropper drops what is in dst.
type dropper struct{ codec.Lines }

func (f dropper) AppendFrame(_, frame []byte) ([]byte, error) {
	return f.Lines.AppendFrame(nil, frame)
}

// A frame is not sent if AppendFrame has dropped dst. Output before and after it is complete.
func TestAppendFrameThatDropsOutput(t *testing.T) {
	srv := &loop.Server{Codec: dropper{}, Accept: with(func(c *loop.Conn) {
		testkit.WantErr(t, "the first Send", c.Send([]byte("one")), nil)
		testkit.WantErr(t, "a shorter one", c.Send([]byte("2")), codec.ErrContract)
		testkit.WantErr(t, "a longer one", c.Send([]byte("three and more")), codec.ErrContract)
		_, _ = c.Write([]byte("end"))
	})}
	bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
		if got := srv.Open().Received(); got != "one\nend" {
			t.Errorf("received %q", got)
		}
	})
}
