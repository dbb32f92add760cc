//go:build unix

package handover_test

import (
	"crypto/tls"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/handover"
)

// A State that is written at once, and a connection that is too large to move: the State moves, the
// connection stays, and one process is in charge.
func TestLarge(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	large := func(who string) *loop.Server {
		srv := lines(who)
		srv.Drain.Delay = patience
		srv.Accept = func(c *loop.Conn) loop.Handler {
			if _, moved := c.Saved(); moved {
				return accept(who)(c)
			}
			return &largeCounter{counter{Who: who}}
		}
		return srv
	}
	a, b := large("a"), large("b")
	notes := &notebook{notes: []string{strings.Repeat("x", 17<<20)}}
	if _, err := open(t, a, handover.Config{Path: path, State: notes, Timeout: patience}); err != nil {
		t.Fatal(err)
	}
	c := dial(t, a)
	c.say("one\n")
	c.hears("a 1 one")
	var got notebook
	n, err := open(t, b, handover.Config{Path: path, State: &got, Timeout: patience})
	if err != nil {
		t.Fatal(err)
	}
	if n.report.Died || n.report.Moved != 0 || n.report.Stayed["refused"] != 1 {
		t.Errorf("%+v, want one that stays with a process that is alive", n.report)
	}
	if len(got.notes) != 1 || len(got.notes[0]) != 17<<20 {
		t.Errorf("the State has not arrived: %d notes", len(got.notes))
	}
	c.say("two\n")
	c.hears("a 2 two")
	next := dial(t, b)
	next.say("one\n")
	next.hears("b 1 one")
}

// A largeCounter has more to save than a message takes.
type largeCounter struct{ counter }

func (*largeCounter) Save(*loop.Conn) ([]byte, error) { return make([]byte, 17<<20), nil }

// What Accept of a connection that moves cannot begin is refused, and a file that it sends goes out.
func TestAcceptOfAMoved(t *testing.T) {
	for name, e := range engines() {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "s")
			file, err := os.CreateTemp(t.TempDir(), "")
			if err != nil {
				t.Fatal(err)
			}
			defer file.Close()
			text := strings.Repeat("0123456789\n", 1<<15)
			if _, err := file.WriteString(text); err != nil {
				t.Fatal(err)
			}
			a, b, errs := lines("a"), lines("b"), make(chan error, 10)
			a.Engine, b.Engine = e, e
			b.Accept = func(c *loop.Conn) loop.Handler {
				_, err := c.NetConn()
				errs <- err
				errs <- c.StartTLS(&tls.Config{Certificates: []tls.Certificate{testkit.Certificate("localhost")}}, nil)
				if err := c.SendFile(file, 0, int64(len(text)), nil); err != nil {
					t.Error(err)
				}
				return accept("b")(c)
			}
			start(t, path, a)
			c := dial(t, a)
			c.say("one\n")
			c.hears("a 1 one")
			start(t, path, b)
			for range 4 { // the rehearsal's, too
				if err := testkit.Receive(t, "an error", errs); err == nil {
					t.Error("NetConn or StartTLS returns nil")
				}
			}
			got := make([]byte, len(text))
			if n, err := io.ReadFull(c.in, got); err != nil || string(got) != text {
				t.Fatalf("read %d bytes of the file, %v, want %d", n, err, len(text))
			}
			c.say("two\n")
			c.hears("b 2 two")
		})
	}
}
