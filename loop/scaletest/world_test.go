//go:build linux

package scaletest_test

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"github.com/loopwheel/loopwheel/loop/internal/engine"
)

var errNoDialing = errors.New("scaletest: nothing is dialed here")

// world implements engine.Engine and engine.Loop: one loop, and the network with all clients, which
// live on the loop's goroutine as well, so that neither costs what goroutines cost.
type world struct {
	host    engine.Host
	base    time.Time
	ticker  *time.Timer
	clients []client
	meter   meter

	comes   chan *client // to be accepted
	calls   chan func()  // for the loop
	wakes   chan struct{}
	quit    chan struct{}
	running sync.WaitGroup

	began    time.Time
	pongs    queue[event] // answers on their way, in order: all take equally long
	returns  queue[event] // clients that will connect anew
	farewell queue[*client]
	talk     rota // who talks, each once a second
	fall     rota // who falls silent, each once in a thousand minutes
	over     bool // nobody connects anew

	pings, echoes, talked, fallen, ended int
	early, latest                        time.Duration // of evictions, by their deadline
}

// An event is something that a client does later.
type event struct {
	due time.Duration
	who *client
}

// A queue has its elements in order of arrival. The place of those that left is used again when
// half of it is free.
type queue[T any] struct {
	all  []T
	gone int
}

func (q *queue[T]) Len() int     { return len(q.all) - q.gone }
func (q *queue[T]) Front() T     { return q.all[q.gone] }
func (q *queue[T]) PushBack(v T) { q.all = append(q.all, v) }

func (q *queue[T]) PopFront() T {
	v := q.all[q.gone]
	if q.gone++; q.gone > len(q.all)/2 {
		q.all = append(q.all[:0], q.all[q.gone:]...)
		q.gone = 0
	}
	return v
}

// A rota makes clients take turns, each once in a period, evenly.
type rota struct {
	from, n int
	begins  time.Duration
	period  time.Duration
	count   int64
}

func (r *rota) due() time.Duration {
	if r.n == 0 {
		return never
	}
	turns, rest := r.count/int64(r.n), r.count%int64(r.n)
	return r.begins + time.Duration(turns)*r.period + time.Duration(rest)*r.period/time.Duration(r.n)
}

// next returns the one whose turn it is.
func (r *rota) next() int {
	i := r.from + int(r.count%int64(r.n))
	r.count++
	return i
}

const never = time.Duration(1<<63 - 1)

func newWorld(n int) *world {
	w := &world{
		clients: make([]client, n),
		comes:   make(chan *client, 1<<16),
		calls:   make(chan func(), 256),
		wakes:   make(chan struct{}, 1),
		quit:    make(chan struct{}),
		began:   time.Now(),
	}
	for i := range w.clients {
		w.clients[i].world = w
	}
	return w
}

// Listen implements engine.Engine.
func (w *world) Listen(context.Context, net.ListenConfig, string, string) (net.Listener, error) {
	return &listener{world: w, closed: make(chan struct{})}, nil
}

// Capacity implements engine.Engine.
func (w *world) Capacity(int) int { return 2 * len(w.clients) }

// Start implements engine.Engine.
func (w *world) Start(base time.Time, hosts []engine.Host) ([]engine.Loop, error) {
	if len(hosts) != 1 {
		return nil, errors.New("scaletest: there is one loop")
	}
	w.host, w.base, w.ticker = hosts[0], base, time.NewTimer(engine.Never)
	w.running.Go(w.run)
	return []engine.Loop{w}, nil
}

// run is the loop.
func (w *world) run() {
	timer := time.NewTimer(time.Hour)
	planned := never
	for {
		if next := w.next(); next != planned {
			planned = next
			timer.Reset(next - w.now())
		}
		select {
		case <-w.wakes:
			w.meter.measure(timers, w.host.OnWake)
		case <-w.ticker.C:
			w.meter.measure(timers, w.host.OnDeadline)
		case f := <-w.calls:
			w.meter.measure(arrival, f)
		case <-timer.C:
			planned = never
			w.deliver()
		case <-w.quit:
			return
		}
	}
}

func (w *world) now() time.Duration { return time.Since(w.began) }

// next returns when something happens on the network, on the millisecond.
func (w *world) next() time.Duration {
	next := min(w.talk.due(), w.fall.due(), 1<<50)
	for _, q := range []*queue[event]{&w.pongs, &w.returns} {
		if q.Len() > 0 {
			next = min(next, q.Front().due)
		}
	}
	if w.farewell.Len() > 0 {
		next = 0
	}
	return (next + time.Millisecond - 1).Truncate(time.Millisecond)
}

var (
	ping = []byte("ping\n")
	pong = []byte("pong\n")
	said = []byte("sixty-four bytes that somebody says to somebody else, in a line\n")
)

// deliver is what epoll_wait would have returned now.
func (w *world) deliver() {
	now := w.now()
	for w.pongs.Len() > 0 && w.pongs.Front().due <= now {
		if e := w.pongs.PopFront(); e.who.life == talking {
			w.read(e.who, pong)
		}
	}
	for w.talk.due() <= now {
		if c := &w.clients[w.talk.next()]; c.life == talking {
			w.talked++
			w.read(c, said)
		}
	}
	for w.fall.due() <= now {
		if c := &w.clients[w.fall.next()]; c.life == talking {
			c.life = silent
			w.fallen++
		}
	}
	for w.returns.Len() > 0 && w.returns.Front().due <= now {
		w.comes <- w.returns.PopFront().who
	}
	for w.farewell.Len() > 0 {
		if c := w.farewell.PopFront(); c.sink != nil {
			w.meter.measure(ended, func() { c.sink.Ended(io.EOF) })
			w.gone(c)
		}
	}
	w.meter.flush()
}

// read is one read event.
func (w *world) read(c *client, p []byte) {
	c.heard = w.now()
	w.meter.few(c, p)
}

// gone is a client that has lost its connection.
func (w *world) gone(c *client) {
	c.sink, c.life = nil, away
	w.ended++
	if !w.over {
		w.returns.PushBack(event{w.now() + time.Second, c})
	}
}

// Wake implements engine.Loop.
func (w *world) Wake() {
	select {
	case w.wakes <- struct{}{}:
	default:
	}
}

// TickAt implements engine.Loop.
func (w *world) TickAt(when time.Duration) { w.ticker.Reset(max(0, when-time.Since(w.base))) }

// Again implements engine.Loop.
func (w *world) Again() { w.Wake() }

// Probe implements engine.Loop.
func (w *world) Probe() {
	select {
	case w.calls <- w.host.OnProbe:
	default: // the queue is full
	}
}

// Enroll implements engine.Loop.
func (w *world) Enroll(nc net.Conn, open func(engine.Socket) engine.Sink, _ func(error)) {
	c := nc.(*client)
	w.calls <- func() {
		c.heard = w.now()
		c.life = talking
		if sink := open((*socket)(c)); c.life == talking {
			c.sink = sink
		}
	}
}

// Lost implements engine.Loop.
func (w *world) Lost() { panic("scaletest: a callback called runtime.Goexit") }

// Stop implements engine.Engine.
func (w *world) Stop() error {
	close(w.quit)
	w.running.Wait()
	return nil
}

func (w *world) Dial(context.Context, net.Dialer, string, string) (net.Conn, error) {
	return nil, errNoDialing
}

func (w *world) ListenPacket(context.Context, net.ListenConfig, string, string, int) ([]net.Conn, error) {
	return nil, errNoDialing
}

func (w *world) ServePacket(net.Conn, engine.PacketSink) (engine.Packets, error) {
	return nil, errNoDialing
}
