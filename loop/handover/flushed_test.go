//go:build unix

package handover_test

import (
	"io"
	"path/filepath"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/handover"
)

// A flooder answers a line with more than the system takes.
type flooder struct {
	*counter
	sent chan int // bytes, and those of them that wait
}

func (h flooder) OnMessage(c *loop.Conn, _ []byte) error {
	n, more := 0, loop.Timer{}
	more = c.Every(time.Millisecond, func() { // by then the system has taken what it takes
		if waits := c.Pending(); waits > 0 {
			more.Stop()
			h.sent <- n
			h.sent <- waits
		} else if _, err := c.Write(make([]byte, 64<<10)); err == nil {
			n += 64 << 10
		}
	})
	return nil
}

// The function of OnFlushed is called for output that came along, even if the first write takes it
// all, whether Accept of the next process sets it or something that Accept starts.
func TestOnFlushedOfOutputThatCameAlong(t *testing.T) {
	for name, set := range map[string]func(c *loop.Conn, f func()){
		"in Accept": (*loop.Conn).OnFlushed,
		"in a Tell": func(c *loop.Conn, f func()) { _ = c.Ref().Tell(func(c *loop.Conn) { c.OnFlushed(f) }) },
	} {
		t.Run(name, func(t *testing.T) {
			a, b := lines("a"), lines("b")
			sent, flushed := make(chan int, 2), make(chan struct{}, 1)
			a.Accept = func(c *loop.Conn) loop.Handler { return flooder{accept("a")(c).(*counter), sent} }
			cfg := handover.Config{Path: filepath.Join(t.TempDir(), "s")}
			if _, err := open(t, a, cfg); err != nil {
				t.Fatal(err)
			}
			c := dial(t, a)
			c.say("x\n")
			n := testkit.Receive(t, "the number of bytes", sent)
			waits := testkit.Receive(t, "the number of those that wait", sent)
			calls := 0
			b.NumLoops = 1
			b.Accept = func(sc *loop.Conn) loop.Handler {
				if calls++; calls == 2 { // the first one is of the rehearsal
					set(sc, func() { flushed <- struct{}{} })
					if _, err := io.CopyN(io.Discard, c, int64(n-waits)); err != nil {
						t.Error(err)
					}
				}
				return accept("b")(sc)
			}
			nb, err := open(t, b, cfg)
			if err != nil {
				t.Fatal(err)
			}
			testkit.Want(t, "moved", nb.report.Moved, 1)
			if _, err := io.CopyN(io.Discard, c, int64(waits)); err != nil {
				t.Error(err)
			}
			testkit.Receive(t, "a call of OnFlushed's function", flushed)
		})
	}
}
