package loop

import (
	"bytes"
	"fmt"
	"io"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/loopwheel/loopwheel/codec"
)

// slowRig is a loop on which each message takes 100 us. These tests are in bubbles of virtual time,
// so that nothing else does.
type slowRig struct {
	*rig
	got []string
	err error
}

func newSlowRig(t *testing.T, codec codec.Codec) *slowRig {
	r := new(slowRig)
	r.rig = newRig(t, &Server{Codec: codec}, r)
	return r
}

func (r *slowRig) OnMessage(_ *Conn, msg []byte) error {
	r.got = append(r.got, string(msg))
	r.pass(100 * time.Microsecond)
	return nil
}

func (r *slowRig) OnClose(_ *Conn, err error) { r.err = err }

// perInput and perTurn are how many of these messages fit into a slice: of input that has come, and
// of a turn.
const (
	perInput = int(inputSlice / (100 * time.Microsecond))
	perTurn  = int(turnSlice / (100 * time.Microsecond))
)

// numbered returns so many lines.
func numbered(n int) []byte {
	var b bytes.Buffer
	for i := range n {
		fmt.Fprintln(&b, i)
	}
	return b.Bytes()
}

func (r *slowRig) expect(t *testing.T, n int) {
	t.Helper()
	if len(r.got) != n {
		t.Fatalf("%d messages were delivered, want %d", len(r.got), n)
	}
	for i, msg := range r.got {
		if msg != fmt.Sprint(i) {
			t.Fatalf("message %d is %q", i, msg)
		}
	}
}

// A connection with much input has its share of the loop, then others have a turn; it goes on in
// turns that come after a look at the sockets, and its socket is read again when all is done.
func TestShareOfTheLoop(t *testing.T) { synctest.Test(t, testShareOfTheLoop) }

func testShareOfTheLoop(t *testing.T) {
	r := newSlowRig(t, codec.Lines{})
	c, s, _ := r.connect()
	s.Readable(numbered(5000))
	n := len(r.got)
	if n != perInput || !r.yielded() || r.woken() != 0 {
		t.Fatalf("%d messages in the first turn; a further turn must come after the sockets", n)
	}
	if !c.in.socketPaused {
		t.Error("its socket is still read")
	}
	for turns := 0; len(r.got) < 5000; turns++ {
		before := len(r.got)
		r.turn()
		if n := len(r.got) - before; n < 1 || n > perTurn {
			t.Fatalf("%d messages in one turn", n)
		}
	}
	r.turn()
	r.expect(t, 5000)
	if c.in.pauses != 0 || r.runQueue.len() != 0 {
		t.Errorf("pauses %b", c.in.pauses)
	}
}

// Two connections with much input take turns: one of them in each turn of the loop, so that the
// others do not wait for both.
func TestSharesAreEqual(t *testing.T) { synctest.Test(t, testSharesAreEqual) }

func testSharesAreEqual(t *testing.T) {
	r := newSlowRig(t, codec.Lines{})
	counts := make(map[*Conn]int)
	r.server.listeners[0].accept = func(*Conn) Handler {
		return HandlerFunc(func(c *Conn, _ []byte) error {
			counts[c]++
			r.pass(100 * time.Microsecond)
			return nil
		})
	}
	a, sa, _ := r.connect()
	b, sb, _ := r.connect()
	sa.Readable(numbered(1000))
	sb.Readable(numbered(1000))
	for range 40 {
		before := counts[a] + counts[b]
		r.turn()
		if n := counts[a] + counts[b] - before; n > perTurn {
			t.Fatalf("%d messages in one turn", n)
		}
	}
	if d := counts[a] - counts[b]; d > 30 || d < -30 || counts[a] < 100 {
		t.Errorf("%d and %d messages", counts[a], counts[b])
	}
}

// A turn in which connections use up their shares asks for the next one as its last act, and once:
// the engine looks at its sockets only if nobody has asked for a turn before this one is over.
func TestSharesDoNotStarveTheSockets(t *testing.T) { synctest.Test(t, testSharesDoNotStarveTheSockets) }

func testSharesDoNotStarveTheSockets(t *testing.T) {
	r := newSlowRig(t, codec.Lines{})
	asked, messages := 0, 0
	r.server.listeners[0].accept = func(*Conn) Handler {
		return HandlerFunc(func(*Conn, []byte) error {
			if messages++; r.yielded() {
				asked++
			}
			r.pass(100 * time.Microsecond)
			return nil
		})
	}
	_, a, _ := r.connect()
	_, b, _ := r.connect()
	a.Readable(numbered(1000))
	if !r.yielded() {
		t.Error("no turn was asked for")
	}
	if b.Readable(numbered(1000)); r.yielded() {
		t.Error("another turn was asked for, though one is to come")
	}
	for range 10 {
		before := messages
		if r.turn(); messages == before || !r.yielded() {
			t.Fatalf("%d messages in a turn; or no further turn was asked for", messages-before)
		}
	}
	if asked > 0 {
		t.Errorf("%d times another turn was asked for while one was running", asked)
	}
}

// What came before the end is delivered, whatever the end is, and whatever comes between.
func TestInputBeforeTheEnd(t *testing.T) { synctest.Test(t, testInputBeforeTheEnd) }

func testInputBeforeTheEnd(t *testing.T) {
	for _, end := range []error{io.EOF, syscall.ECONNRESET} {
		for turns := range 3 {
			r := newSlowRig(t, codec.Lines{})
			_, s, _ := r.connect()
			s.Readable(numbered(100))
			for range turns {
				r.turn()
			}
			s.Ended(end)
			for r.err == nil && r.runQueue.len() > 0 {
				r.turn()
			}
			r.expect(t, 100)
			if r.err != end {
				t.Errorf("closed with %v, want %v", r.err, end)
			}
		}
	}
}

// By a reset a peer gets no more of the loop at once: what it sent before is delivered in shares.
func TestResetDoesNotEndTheShares(t *testing.T) { synctest.Test(t, testResetDoesNotEndTheShares) }

func testResetDoesNotEndTheShares(t *testing.T) {
	r := newSlowRig(t, codec.Lines{})
	r.server.Hooks.OnClosing = func(*Conn, error) { t.Error("there is a last word for nobody") }
	c, s, sock := r.connect()
	s.Readable(numbered(1000))
	s.Ended(syscall.ECONNRESET)
	writes := sock.writes
	if n := len(r.got); n > perInput || r.err != nil {
		t.Fatalf("%d messages at once; closed with %v", n, r.err)
	}
	for turns := 0; r.err == nil; turns++ {
		before := len(r.got)
		if turns == 3 {
			if _, err := c.Write([]byte("nobody hears this")); err != nil {
				t.Error(err)
			}
		}
		if r.turn(); len(r.got)-before > perTurn || turns > 1000 {
			t.Fatalf("%d messages in turn %d", len(r.got)-before, turns)
		}
	}
	r.expect(t, 1000)
	if r.err != syscall.ECONNRESET || sock.writes != writes || !c.isClosed() {
		t.Errorf("closed with %v, %d writes to a socket that is gone", r.err, sock.writes-writes)
	}
}

// Nobody resumes a connection that a timer or a Tell pauses after its peer's reset: it closes, as a
// reset of a paused connection does. Reasons that end by themselves leave its input to be
// delivered.
func TestPauseAfterAReset(t *testing.T) {
	for name, pause := range map[string]func(c *Conn){
		"by the user":              (*Conn).PauseRead,
		"by a layer":               func(c *Conn) { c.holdRead(true) },
		"within a mailbox's pause": func(c *Conn) { c.pause(heldByMailbox); c.PauseRead(); c.resume(heldByMailbox) },
		"twice":                    func(c *Conn) { c.PauseRead(); c.ResumeRead(); c.PauseRead() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { testPauseAfterAReset(t, pause) })
		})
	}
	t.Run("by a mailbox", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := newSlowRig(t, codec.Lines{})
			c, s, _ := r.connect()
			s.Readable(numbered(1000))
			s.Ended(syscall.ECONNRESET)
			c.pause(heldByMailbox)
			r.turn()
			c.AfterFunc(time.Second, func() { _, _ = c.Write([]byte("nobody hears this")) })
			c.SetIdleTimeout(2 * time.Second)
			r.pass(3 * time.Second) // both are due in one turn
			if r.turn(); r.err != nil {
				t.Errorf("closed with %v while a mailbox holds it", r.err)
			}
			c.resume(heldByMailbox)
			for range 1000 {
				r.turn()
			}
			r.expect(t, 1000)
		})
	})
}

func testPauseAfterAReset(t *testing.T, pause func(*Conn)) {
	r := newSlowRig(t, codec.Lines{})
	c, s, _ := r.connect()
	s.Readable(numbered(1000))
	s.Ended(syscall.ECONNRESET)
	pause(c)
	r.turn()
	r.turn()
	if r.err != syscall.ECONNRESET || !c.isClosed() || r.runQueue.len() > 0 {
		t.Errorf("closed with %v, want %v; %d wait for a turn", r.err, syscall.ECONNRESET, r.runQueue.len())
	}
}

// A long message counts for more: the clock is read after it.
func TestLongMessagesCountForMore(t *testing.T) { synctest.Test(t, testLongMessagesCountForMore) }

func testLongMessagesCountForMore(t *testing.T) {
	r := newSlowRig(t, codec.Lines{})
	_, s, _ := r.connect()
	long := append(bytes.Repeat([]byte("x"), 20_000), '\n')
	r.server.listeners[0].accept = nil
	s.Readable(bytes.Repeat(long, 10))
	if n := len(r.got); n != 5 {
		t.Errorf("%d long messages of 100 us in one turn, want 5", n)
	}
}

// More input that arrives while some waits for its turn stays in order, and a pause holds it as
// well.
func TestShareAndPauses(t *testing.T) { synctest.Test(t, testShareAndPauses) }

func testShareAndPauses(t *testing.T) {
	r := newSlowRig(t, codec.Lines{})
	c, s, _ := r.connect()
	all := numbered(200)
	s.Readable(all[:400])
	s.Readable(all[400:])
	c.PauseRead()
	n := len(r.got)
	r.turn()
	if len(r.got) != n {
		t.Error("messages came while paused")
	}
	c.ResumeRead()
	for r.runQueue.len() > 0 {
		r.turn()
	}
	r.expect(t, 200)
}
