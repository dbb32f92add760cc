package netengine

import (
	"sync"
	"time"

	"github.com/loopwheel/loopwheel/loop/internal/engine"
)

// Loops are event loops that are goroutines with a queue, for engines that have no poller of their
// own: this one, and that of package looptest.
type Loops struct {
	loops   []*TaskLoop
	running sync.WaitGroup
}

// A TaskLoop is a goroutine that runs one task after the other. It implements the part of
// engine.Loop that has nothing to do with sockets.
type TaskLoop struct {
	*engine.Queue
	host   engine.Host
	base   time.Time // what ticks count from
	ticker *time.Timer
	more   chan struct{} // holds a value when there may be something in the queue
}

// A Home is where the tasks of a socket run: a loop, which changes. The zero Home keeps them for
// the first loop. Any goroutine may call Execute; Leave is called on the loop, and Join on the next
// one.
type Home struct {
	mu   sync.Mutex
	loop *TaskLoop // nil: the socket is on its way to one
	kept []func()  // tasks of then
}

// Execute runs f on the loop that the socket has then.
func (h *Home) Execute(f func()) {
	h.mu.Lock()
	l := h.loop
	if l == nil {
		h.kept = append(h.kept, f)
	}
	h.mu.Unlock()
	if l != nil {
		l.Execute(func() {
			if h.is(l) {
				f()
			} else { // it has left meanwhile
				h.Execute(f)
			}
		})
	}
}

func (h *Home) is(l *TaskLoop) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.loop == l
}

// Soon runs f, which does not care on which loop, on the present one, and costs no memory.
func (h *Home) Soon(f func()) {
	h.mu.Lock()
	l := h.loop
	if l == nil {
		h.kept = append(h.kept, f)
	}
	h.mu.Unlock()
	if l != nil {
		l.Execute(f)
	}
}

// Leave takes the socket off its loop.
func (h *Home) Leave() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.loop = nil
}

// Join gives it to another one.
func (h *Home) Join(l *TaskLoop) {
	h.mu.Lock()
	kept := h.kept
	h.loop, h.kept = l, nil
	h.mu.Unlock()
	for _, f := range kept {
		h.Execute(f)
	}
}

// Run starts a loop. base is what its TickAt counts from.
func (ls *Loops) Run(base time.Time, h engine.Host) *TaskLoop {
	l := &TaskLoop{host: h, base: base, more: make(chan struct{}, 1)}
	l.Queue = engine.NewQueue(l.notify)
	l.ticker = time.AfterFunc(engine.Never, func() { l.Execute(h.OnDeadline) })
	ls.loops = append(ls.loops, l)
	ls.running.Go(l.run)
	return l
}

// End ends all loops and waits for them.
func (ls *Loops) End() {
	for _, l := range ls.loops {
		l.End()
	}
	ls.running.Wait()
}

// Wake implements engine.Loop.
func (l *TaskLoop) Wake() { l.Execute(l.host.OnWake) }

// Probe implements engine.Loop: what happens to sockets is in the queue, too.
func (l *TaskLoop) Probe() { l.Execute(l.host.OnProbe) }

// Again implements engine.Loop: what has been queued meanwhile comes first.
func (l *TaskLoop) Again() { l.Wake() }

// TickAt implements engine.Loop.
func (l *TaskLoop) TickAt(when time.Duration) {
	if when == engine.Never {
		l.ticker.Stop()
		return
	}
	l.ticker.Reset(max(0, when-time.Since(l.base)))
}

// Lost implements engine.Loop.
func (l *TaskLoop) Lost() { l.End() }

// notify makes the loop look into its queue.
func (l *TaskLoop) notify() {
	select {
	case l.more <- struct{}{}:
	default: // it will look
	}
}

// run is the loop's goroutine. A callback may end it.
func (l *TaskLoop) run() {
	defer l.ticker.Stop()
	defer l.End()
	for {
		if f := l.Next(); f != nil {
			f()
			continue
		}
		select {
		case <-l.more:
		case <-l.Ended():
			return
		}
	}
}
