package loop_test

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/loop"
)

// lives are the connections of a server that do all there is to do, at random, from within whatever
// is called, and hold what happens against what is promised of the order of events.
type lives struct {
	t       *testing.T
	seed    uint64
	second  time.Duration // as long as they take it for
	places  [2]lifePlace  // of each loop
	faults  atomic.Int64
	mu      sync.Mutex
	byPeer  map[string]*life
	numbers [numLifeOps]atomic.Int64
	server  *loop.Server
}

// lifePlace is what lives on one loop.
type lifePlace struct {
	depth int     // of callbacks
	lives []*life // the last few, closed ones too
}

// keepLives is how many connections a loop remembers: methods are called on long-closed ones as
// often as on others.
const keepLives = 8

// A life is one connection.
type life struct {
	*lives
	c     *loop.Conn
	r     *rand.Rand
	place *lifePlace

	known      bool  // what will have ended it
	cause      error // what OnClose must be told then
	reason     error // what OnClose got
	closed     bool  // OnClose has been called
	last       bool  // OnClosing has been called, and may send
	paused     bool
	writeEnded bool
	moving     bool
	moves      atomic.Int64 // that were asked for

	in, out      int // the number of the line that comes next, that is sent next
	tells, told  int
	jobs, thens  int
	after, ended int // functions given to AfterClose, and run
	timers       []*lifeTimer
}

type lifeTimer struct {
	loop.Timer
	due     time.Time
	stopped bool
	n       int // of a hook
}

var errLife = errors.New("a life ends")

func newLives(t *testing.T, seed uint64, second time.Duration) *lives {
	return &lives{t: t, seed: seed, second: second, byPeer: make(map[string]*life)}
}

// server returns one whose limits are met now and then.
func (ls *lives) newServer() *loop.Server {
	ls.server = &loop.Server{
		NumLoops: len(ls.places), Codec: codec.Lines{}, Accept: ls.accept, IdleTimeout: 30 * ls.second,
		Timeouts: loop.Timeouts{Frame: 5 * ls.second, Close: ls.second}, Drain: loop.Drain{Timeout: 20 * ls.second},
		Limits: loop.Limits{MaxOutbound: 200 << 10, HoldBackAt: 20 << 10}, Hooks: loop.Hooks{OnClosing: ls.closing, OnDrain: ls.drain},
		Logger: zerolog.New(io.Discard), // panics are on purpose
	}
	return ls.server
}

// fault tells what was not as promised: the first ones, as one brings others.
func (ls *lives) fault(format string, args ...any) {
	if ls.faults.Add(1) <= 10 {
		ls.t.Errorf(format, args...)
	}
}

func (l *life) wrong(format string, args ...any) {
	l.fault("connection %d: %s", l.c.ID(), fmt.Sprintf(format, args...))
}

// d returns a time of up to so many seconds.
func (l *life) d(seconds int) time.Duration {
	return time.Duration(l.r.IntN(seconds*1000)) * l.second / 1000
}

// isClosing asks the connection, as nobody tells that its end has begun.
func (l *life) isClosing() bool {
	timer := l.c.AfterFunc(time.Hour, func() {})
	timer.Stop()
	return timer == loop.Timer{}
}

// end notes what ends the connection, if nothing has yet.
func (l *life) end(cause error) {
	if !l.known && !l.isClosing() {
		l.known, l.cause = true, cause
	}
}

// begin is the first thing in a callback of a connection that is open. What is not nested comes
// within no other callback.
func (l *life) begin(what string, nested bool) (end func()) {
	if l.place.depth > 0 && !nested {
		l.wrong("%s within another callback", what)
	}
	if l.closed || l.isClosing() {
		l.wrong("%s when it is closing; closed: %v", what, l.closed)
	}
	return l.enter()
}

func (l *life) enter() (end func()) {
	l.place.depth++
	return func() { l.place.depth-- }
}

// body does something in a callback, and panics now and then.
func (l *life) body() {
	for range l.r.IntN(4) {
		l.act()
	}
	if l.r.IntN(200) == 0 {
		l.end(&loop.PanicError{})
		panic(errLife)
	}
}

func (ls *lives) accept(c *loop.Conn) loop.Handler {
	l := &life{lives: ls, c: c, r: rand.New(rand.NewPCG(ls.seed, c.ID())), place: &ls.places[c.Loop().Index()]}
	l.live()
	ls.mu.Lock()
	ls.byPeer[c.RemoteAddr().String()] = l
	ls.mu.Unlock()
	defer l.enter()()
	for range l.r.IntN(4) {
		l.act()
	}
	return l
}

// live makes it known to the others of its loop.
func (l *life) live() {
	if l.place.lives = append(l.place.lives, l); len(l.place.lives) > keepLives {
		l.place.lives = l.place.lives[1:]
	}
}

// of returns the life of an open connection.
func (ls *lives) of(c *loop.Conn) *life {
	l, _ := loop.HandlerAs[*life](c)
	return l
}

func (l *life) OnMessage(_ *loop.Conn, msg []byte) error {
	defer l.begin("a message", false)()
	if l.paused {
		l.wrong("a message while reading is paused")
	}
	if want := fmt.Sprint(l.in); string(msg) != want {
		l.wrong("message %q, want %q", msg, want)
	}
	l.in++
	if l.body(); l.r.IntN(300) == 0 {
		l.end(errLife)
		return errLife
	}
	return nil
}

// closing is Server.Hooks.OnClosing.
func (ls *lives) closing(c *loop.Conn, err error) {
	l := ls.of(c)
	if l.place.depth > 0 || l.closed || l.last {
		l.wrong("OnClosing within a callback, after OnClose or again: %d, %v, %v", l.place.depth, l.closed, l.last)
	}
	l.mustBeCause(err)
	defer l.enter()()
	l.last = true
	defer func() { l.last = false }()
	l.body()
}

// drain is Server.Hooks.OnDrain.
func (ls *lives) drain(c *loop.Conn) {
	l := ls.of(c)
	defer l.begin("OnDrain", false)()
	l.body()
}

func (l *life) mustBeCause(err error) {
	var panicked *loop.PanicError
	switch want := l.cause; {
	case !l.known:
	case errors.As(want, &panicked):
		if !errors.As(err, &panicked) || !errors.Is(err, errLife) {
			l.wrong("ended by %v, but it had panicked", err)
		}
	case errors.Is(err, loop.ErrOutputLost) && (want == nil || errors.Is(err, want)):
	case err != want:
		l.wrong("ended by %v, want %v", err, want)
	}
}

func (l *life) OnClose(_ *loop.Conn, err error) {
	if l.place.depth > 0 || l.closed {
		l.wrong("OnClose within a callback, or again: %d, %v", l.place.depth, l.closed)
	}
	l.mustBeCause(err)
	l.closed, l.reason = true, err
	defer l.enter()()
	l.body()
}

// isOrdered counts what must come in the order of its numbers.
func (l *life) isOrdered(what string, next *int, n int) {
	if *next != n {
		l.wrong("%s %d comes, want %d", what, n, *next)
	}
	*next = n + 1
}

// checkLines returns how many whole lines a peer has got, which must be those that were sent first.
func checkLines(got string) (n int, err error) {
	for line := range strings.Lines(got) {
		number, _, ok := strings.Cut(line, " ")
		if !strings.HasSuffix(line, "\n") {
			break // cut
		}
		if !ok || number != fmt.Sprint(n) {
			return n, fmt.Errorf("line %d begins with %.20q", n, line)
		}
		n++
	}
	return n, nil
}
