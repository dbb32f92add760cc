package loop_test

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/looptest"
)

// fileOf returns an open file of n random bytes, and the bytes.
func fileOf(t *testing.T, n int) (*os.File, []byte) {
	t.Helper()
	r := rand.New(rand.NewPCG(1, uint64(n)))
	data := make([]byte, n)
	for i := range data {
		data[i] = byte(r.Uint32())
	}
	name := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(name, data, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f, data
}

// sender is a connection that is asked to send files, and what became of it.
type sender struct {
	*journal
	f *os.File
}

func (s sender) OnMessage(c *loop.Conn, msg []byte) error {
	var offset, n int64
	if _, err := fmt.Sscanf(string(msg), "%d %d", &offset, &n); err != nil {
		return c.Send(msg)
	}
	_ = c.Send([]byte("before"))
	err := c.SendFile(s.f, offset, n, func(err error) { s.add(fmt.Sprint("done ", err)) })
	if err != nil {
		return err
	}
	return c.Send([]byte("after"))
}

func (s sender) OnClose(_ *loop.Conn, err error) {
	s.add(fmt.Sprintf("closed, io.EOF %v, lost %v, drained %v", errors.Is(err, io.EOF), errors.Is(err, loop.ErrOutputLost), errors.Is(err, loop.ErrServerClosed)))
}

// files runs f with a server that sends parts of a file of a million bytes, and a peer that has
// asked for size bytes of it.
func files(t *testing.T, room, size int, f func(srv *looptest.Server, p *looptest.Peer, s sender, want string)) {
	t.Helper()
	file, data := fileOf(t, 1_000_000)
	s := sender{newJournal(), file}
	srv := &loop.Server{NumLoops: 1, Codec: codec.Lines{}, Accept: func(*loop.Conn) loop.Handler { return s }}
	bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
		p := srv.Open()
		if room >= 0 {
			p.Block(room)
		}
		p.Send(fmt.Sprintf("7 %d\n", size))
		f(srv, p, s, "before\n"+string(data[7:min(len(data), 7+size)])+"after\n")
	})
}

// take reads what p's server has for it, n bytes at a time.
func take(srv *looptest.Server, p *looptest.Peer, n int) (got string) {
	got = p.Received()
	for {
		p.Block(n)
		srv.Sleep(time.Millisecond)
		part := p.Received()
		if got += part; part == "" {
			p.Unblock()
			return got
		}
	}
}

func TestSendFile(t *testing.T) {
	for _, size := range []int{0, 1, 64 << 10, 64<<10 + 1, 300_000} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			files(t, -1, size, func(srv *looptest.Server, p *looptest.Peer, s sender, want string) {
				srv.Sleep(time.Second)
				if got := p.Received(); got != want {
					t.Errorf("received %d bytes, want %d, the first other than wanted at %d", len(got), len(want), firstOther(got, want))
				}
				s.expect(t, "done <nil>")
			})
		})
		t.Run(fmt.Sprint(size, " to a slow peer"), func(t *testing.T) {
			files(t, 1000, size, func(srv *looptest.Server, p *looptest.Peer, s sender, want string) {
				if got := take(srv, p, 5000); got != want {
					t.Errorf("received %d bytes, want %d, the first other than wanted at %d", len(got), len(want), firstOther(got, want))
				}
				s.expect(t, "done <nil>")
			})
		})
	}
}

// firstOther returns where two strings begin to differ.
func firstOther(a, b string) int {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return i
		}
	}
	return min(len(a), len(b))
}

// A file that is shorter than was said is sent as far as it goes.
func TestSendFileShort(t *testing.T) {
	files(t, -1, 1_100_000, func(srv *looptest.Server, p *looptest.Peer, s sender, want string) {
		srv.Sleep(time.Second)
		if got := p.Received(); got != want {
			t.Errorf("received %d bytes, want %d", len(got), len(want))
		}
		s.expect(t, "done unexpected EOF")
	})
}

// Whatever ends the connection amid a file, done is called once, and before OnClose.
func TestSendFileEnds(t *testing.T) {
	for name, c := range map[string]struct {
		end  func(srv *looptest.Server, p *looptest.Peer)
		all  bool // the peer gets all of it
		want []string
	}{
		"the peer resets": {end: func(_ *looptest.Server, p *looptest.Peer) { p.Reset() },
			want: []string{"done loop: connection closed", "closed, io.EOF false, lost false, drained false"}},
		"Close": {end: func(srv *looptest.Server, p *looptest.Peer) { tell(srv, p, (*loop.Conn).Close) },
			want: []string{"done loop: connection closed", "closed, io.EOF false, lost true, drained false"}},
		"the peer ends its output": {end: func(_ *looptest.Server, p *looptest.Peer) { p.CloseWrite() }, all: true,
			want: []string{"done <nil>", "closed, io.EOF true, lost false, drained false"}},
		"the drain": {end: func(srv *looptest.Server, _ *looptest.Peer) { srv.Shutdown() }, all: true,
			want: []string{"done <nil>", "closed, io.EOF false, lost false, drained true"}},
		"the drain, whose time is over": {end: func(srv *looptest.Server, _ *looptest.Peer) { srv.Shutdown(); srv.Sleep(time.Minute); _ = srv.Stop() },
			want: []string{"done loop: connection closed", "closed, io.EOF false, lost true, drained true"}},
		"CloseWrite": {end: func(srv *looptest.Server, p *looptest.Peer) { tell(srv, p, (*loop.Conn).CloseWrite) }, all: true,
			want: []string{"done <nil>"}},
	} {
		t.Run(name, func(t *testing.T) {
			files(t, 1000, 500_000, func(srv *looptest.Server, p *looptest.Peer, s sender, want string) {
				srv.Sleep(time.Millisecond)
				c.end(srv, p)
				got := take(srv, p, 50_000)
				if c.all && got != want {
					t.Errorf("received %d bytes, want %d", len(got), len(want))
				}
				if !c.all && !strings.HasPrefix(want, got) {
					t.Errorf("received %d bytes, which are not the beginning of what was sent", len(got))
				}
				srv.Sleep(10 * time.Second)
				s.expect(t, c.want...)
			})
		})
	}
}

// What cannot be done with a file under way is an error, and harms nothing.
func TestSendFileRefuses(t *testing.T) {
	file, _ := fileOf(t, 10)
	files(t, 1000, 100_000, func(srv *looptest.Server, p *looptest.Peer, s sender, want string) {
		tell(srv, p, func(c *loop.Conn) {
			for what, err := range map[string]error{
				"a second file":     c.SendFile(file, 0, 1, nil),
				"a negative offset": c.SendFile(file, -1, 1, nil),
				"a negative size":   c.SendFile(file, 0, -1, nil),
				"StartTLS":          c.StartTLS(serverTLS(), nil),
				"Detach":            errOf(c.Detach()),
				"NetConn":           errOf2(c.NetConn()),
			} {
				if err == nil {
					t.Errorf("%s: no error", what)
				}
			}
		})
		if got := take(srv, p, 5000); got != want {
			t.Errorf("received %d bytes, want %d", len(got), len(want))
		}
		s.expect(t, "done <nil>")
	})
}

func errOf(_ net.Conn, _ []byte, err error) error { return err }
func errOf2(_ net.Conn, err error) error          { return err }

// Pushes amid a file count against MaxOutbound, and the file does not; OnFlushed comes after it.
func TestSendFileMarks(t *testing.T) {
	file, _ := fileOf(t, 100_000)
	j := newJournal()
	srv := &loop.Server{NumLoops: 1, Limits: loop.Limits{MaxOutbound: 1000}, Accept: with(func(c *loop.Conn) {
		c.OnFlushed(func() { j.add("flushed") })
		j.add(fmt.Sprint("SendFile ", c.SendFile(file, 0, 100_000, func(err error) { j.add(fmt.Sprint("done ", err)) })))
	})}
	bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
		p := srv.Open()
		p.Block(10)
		tell(srv, p, func(c *loop.Conn) {
			testkit.Want(t, "Pending amid the file", c.Pending(), 0)
			testkit.WantErr(t, "the first push", c.Send(make([]byte, 1001)), nil)
		})
		take(srv, p, 10_000)
		p.Block(10)
		tell(srv, p, func(c *loop.Conn) { j.add(fmt.Sprint("SendFile ", c.SendFile(file, 0, 100_000, nil))) })
		tell(srv, p, func(c *loop.Conn) {
			_ = c.Send(make([]byte, 1001))
			testkit.WantErr(t, "a push above MaxOutbound", c.Send([]byte("x")), loop.ErrSlowConsumer)
		})
		j.expect(t, "SendFile <nil>", "done <nil>", "flushed", "SendFile <nil>")
	})
}

func TestWritev(t *testing.T) {
	var want strings.Builder
	var bufs net.Buffers
	for i := range 3000 {
		b := strings.Repeat(string(rune('a'+i%26)), i%50)
		bufs = append(bufs, []byte(b))
		want.WriteString(b)
	}
	for _, room := range []int{-1, 0, 10, 30_000} {
		t.Run(fmt.Sprint("room ", room), func(t *testing.T) {
			srv := &loop.Server{NumLoops: 1, Accept: func(c *loop.Conn) loop.Handler {
				return script{}
			}}
			bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
				p := srv.Open()
				if room >= 0 {
					p.Block(room)
				}
				tell(srv, p, func(c *loop.Conn) {
					_, _ = c.Write([]byte("<"))
					n, err := c.Writev(bufs)
					testkit.Want(t, "the bytes that are taken", n, want.Len())
					testkit.WantErr(t, "the error", err, nil)
					_, _ = c.Writev(net.Buffers{[]byte("a few"), nil, []byte(">")})
				})
				if got := take(srv, p, 1000); got != "<"+want.String()+"a few>" {
					t.Errorf("received %d bytes, want %d", len(got), want.Len()+7)
				}
				tell(srv, p, func(c *loop.Conn) {
					c.Close()
					_, err := c.Writev(bufs)
					testkit.WantErr(t, "Writev after Close", err, loop.ErrClosed)
				})
			})
		})
	}
}

// A peer that takes nothing of a file, and is not read, is silent, whatever the reason why it is
// not read: its bytes that wait do not keep it for ever.
func TestSendFileToASilentPeer(t *testing.T) {
	var srv *loop.Server
	other := func(c *loop.Conn) *loop.Loop { return srv.Loops()[1-c.Loop().Index()] }
	for name, stop := range map[string]func(c *loop.Conn) error{
		"paused": func(c *loop.Conn) error { c.PauseRead(); return nil },
		"about to move": func(c *loop.Conn) error {
			return c.MoveTo(other(c), func(*loop.Conn) { t.Error("moved amid a file") })
		},
	} {
		t.Run(name, func(t *testing.T) {
			file, _ := fileOf(t, 1_000_000)
			srv = &loop.Server{NumLoops: 2, IdleTimeout: 5 * time.Second, Timeouts: loop.Timeouts{Close: time.Second}, Codec: codec.Lines{}, Accept: func(*loop.Conn) loop.Handler {
				return loop.HandlerFunc(func(c *loop.Conn, _ []byte) error {
					return cmp.Or(c.SendFile(file, 0, 1_000_000, nil), stop(c))
				})
			}}
			bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
				p := srv.Open()
				p.Block(1000)
				p.Send("go\nmore\n")
				srv.Sleep(12 * time.Second)
				testkit.WantErr(t, "the end", p.Reason(), loop.ErrIdle)
			})
		})
	}
}
