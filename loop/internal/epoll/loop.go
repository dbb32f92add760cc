//go:build linux && !386 && !s390x

package epoll

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/loopwheel/loopwheel/loop/internal/engine"
	"github.com/loopwheel/loopwheel/loop/internal/sockets"
)

const (
	// pollBatch is how many events are taken at once.
	pollBatch = 128

	// disarmAfter is after how many rounds in a row that have found something the loop counts as
	// busy, and disarms its entry in Go's poller.
	disarmAfter = 2
)

// longAgo is a deadline that is over.
var longAgo = time.Unix(1, 0)

// epollLoop implements engine.Loop: a goroutine with an epoll instance that has all its sockets.
//
// The loop waits in Go's own poller. A goroutine that waits in epoll_wait itself keeps its P until
// the runtime's monitor has looked for it some 50 times, and keeps the monitor awake meanwhile.
//
// Go's poller does not watch the instance itself, but a second one, in which the first is the only
// entry. While the loop is busy that entry is disarmed: otherwise each arrival would wake a thread
// in Go's poller, for a loop that is awake. Before it waits the loop arms the entry again, and
// looks once more: the kernel does not report an event twice.
//
// The loop waits until its next tick by setting a deadline of the file. Another goroutine wakes it
// by setting a deadline that has passed, which costs no system call.
//
// A field is the loop's own unless its comment says otherwise.
type epollLoop struct {
	*engine.Queue // of tasks; any goroutine may use it

	host     engine.Host
	index    int       // for errors
	base     time.Time // what ticks count from
	fd       int       // the epoll instance
	outer    int       // the second instance
	file     *os.File  // which has outer, for Go's poller; any may set its deadline
	disarmed bool
	tick     time.Duration // of TickAt
	deadline time.Duration // until when the loop waits, at most; later than tick costs one look
	watched  []pollee      // by place, which an event carries, so no pollee may move
	free     []int32       // places that are nil in watched
	left     []int32       // places that become free with the next look: events in hand may carry them
	events   [pollBatch]unix.EpollEvent
	again    bool  // of Again
	err      error // why the loop ends without Stop

	input   []byte         // what sockets read into
	packets *sockets.Batch // what UDP sockets read into

	// Any goroutine may use these.
	probed  atomic.Bool    // of Probe
	wanted  atomic.Bool    // of Wake, or the queue has a task
	resting atomic.Bool    // the loop waits, or is about to, and has not been woken
	leaving atomic.Bool    // the loop ends
	running sync.WaitGroup // the goroutine
}

// A pollee is what epoll watches.
type pollee interface {
	polled(events uint32) // on the loop
	release()             // when the loop has ended
}

// newLoop returns a loop that ticks by the time since base. With an error close must be called as
// well.
func newLoop(h engine.Host, index int, base time.Time) (l *epollLoop, err error) {
	l = &epollLoop{host: h, index: index, base: base, tick: engine.Never, deadline: engine.Never, outer: -1}
	l.Queue = engine.NewQueue(l.Wake)
	if l.fd, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return l, os.NewSyscallError("epoll_create1", err)
	}
	if l.outer, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return l, os.NewSyscallError("epoll_create1", err)
	}
	_ = unix.SetNonblock(l.outer, true) // os.NewFile takes it for pollable then
	l.file = os.NewFile(uintptr(l.outer), "epoll")
	if err := rawControl(l.outer, unix.EPOLL_CTL_ADD, l.fd, &unix.EpollEvent{Events: unix.EPOLLIN}); err != nil {
		return l, err
	}
	return l, l.file.SetReadDeadline(time.Time{}) // an error: Go's poller has not taken it
}

// run is the loop's goroutine.
func (l *epollLoop) run() {
	defer l.End() // also if a callback has ended the goroutine
	if err := l.poll(); err != nil {
		l.End()
		l.endSockets(engine.ErrEnded)
		l.host.LoopEnded(fmt.Errorf("loop: event loop %d ended: %w", l.index, err))
	}
}

// poll waits for work and does it, until Stop or an error.
func (l *epollLoop) poll() error {
	raw, err := l.file.SyscallConn()
	for err == nil || errors.Is(err, os.ErrDeadlineExceeded) { // a tick is due, or it was woken
		l.deadline = engine.Never
		if err = l.file.SetReadDeadline(time.Time{}); err != nil {
			break
		}
		if err = raw.Read(l.rounds); err == nil {
			return l.err
		}
	}
	return err
}

// rounds works until nothing is left. Go's poller calls it at the start, after each event, and
// sometimes without one.
func (l *epollLoop) rounds(uintptr) (leave bool) {
	for {
		l.resting.Store(false)
		for n := 1; ; n++ {
			if l.round() {
				if n == disarmAfter && !l.disarmed {
					l.arm(false)
				}
				continue
			}
			if !l.disarmed {
				break
			}
			n = 0
			l.arm(true) // the kernel reports what comes from here on; another round finds what came before
		}
		if l.tick < l.deadline { // a later tick costs one look for nothing, and no call here
			l.deadline = l.tick
			_ = l.file.SetReadDeadline(l.base.Add(l.tick))
		}
		l.resting.Store(true)
		if l.leaving.Load() || !l.wanted.Load() { // from here on Wake wakes it
			return l.leaving.Load()
		}
	}
}

// arm makes Go's poller watch the loop's epoll instance, or not.
func (l *epollLoop) arm(watch bool) {
	events := uint32(0)
	if watch {
		events = unix.EPOLLIN
	}
	l.disarmed = !watch
	if err := rawControl(l.outer, unix.EPOLL_CTL_MOD, l.fd, &unix.EpollEvent{Events: events}); err != nil {
		l.fail(err)
	}
}

// round polls once and makes the calls that are due. It reports whether to poll again before the
// loop waits: as long as it has found something.
//
// A turn that was asked for comes after the events of the poll: sockets that were ready before it
// do not wait for it.
func (l *epollLoop) round() (more bool) {
	wanted := l.wanted.Swap(false)
	turn := wanted || l.again
	l.free, l.left = append(l.free, l.left...), l.left[:0]
	n, _, errno := syscall.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(l.fd),
		uintptr(unsafe.Pointer(&l.events[0])), pollBatch, 0, 0, 0)
	if errno == unix.EINTR {
		n = 0
	} else if errno != 0 {
		l.fail(os.NewSyscallError("epoll_pwait", errno))
		return false
	}
	for _, ev := range l.events[:n] {
		if p := l.watched[ev.Fd]; p != nil { // otherwise an event before this one has removed it
			p.polled(ev.Events)
		}
	}
	if l.probed.Load() && l.probed.Swap(false) {
		l.host.OnProbe()
	}
	if wanted {
		for range l.Len() { // tasks that are put meanwhile come after the next poll
			if f := l.Next(); f != nil {
				f()
			}
		}
	}
	if turn && !l.leaving.Load() { // Stop wakes also a loop whose host has not been called yet
		l.again = false // also for the sockets just served
		l.host.OnWake()
	}
	if l.tick != engine.Never && time.Since(l.base) >= l.tick {
		l.tick = engine.Never
		l.host.OnDeadline()
	}
	return (n != 0 || l.again || l.wanted.Load()) && !l.leaving.Load()
}

// fail ends the loop with an error.
func (l *epollLoop) fail(err error) {
	l.err = err
	l.leaving.Store(true)
}

// add begins to watch fd.
func (l *epollLoop) add(fd int, events uint32, p pollee) (place int32, err error) {
	if n := len(l.free); n > 0 {
		place = l.free[n-1]
		l.free = l.free[:n-1]
	} else {
		place = int32(len(l.watched))
		l.watched = append(l.watched, nil)
	}
	if err := l.control(unix.EPOLL_CTL_ADD, fd, place, events); err != nil {
		l.free = append(l.free, place)
		return 0, err
	}
	l.watched[place] = p
	return place, nil
}

// remove must be called before fd is closed.
func (l *epollLoop) remove(place int32, fd int) {
	_ = rawControl(l.fd, unix.EPOLL_CTL_DEL, fd, nil)
	l.watched[place] = nil
	l.left = append(l.left, place)
}

// control adds fd, or changes what it is watched for.
func (l *epollLoop) control(op, fd int, place int32, events uint32) error {
	return rawControl(l.fd, op, fd, &unix.EpollEvent{Events: events, Fd: place})
}

// endSockets reports to all sinks that the loop has ended.
func (l *epollLoop) endSockets(err error) {
	for _, p := range l.watched {
		if s, ok := p.(*socket); ok && !s.ended {
			s.over(err)
		}
	}
}

// close closes what is left when the loop has ended.
func (l *epollLoop) close() {
	for _, p := range l.watched {
		if p != nil {
			p.release()
		}
	}
	_ = l.file.Close() // of nil, too
	_ = unix.Close(l.fd)
}

// rawControl is epoll_ctl, which does not block, past Go's scheduler: see sockets.MaxRaw.
func rawControl(epoll, op, fd int, event *unix.EpollEvent) error {
	_, _, errno := syscall.RawSyscall6(unix.SYS_EPOLL_CTL, uintptr(epoll), uintptr(op), uintptr(fd),
		uintptr(unsafe.Pointer(event)), 0, 0)
	if errno != 0 {
		return os.NewSyscallError("epoll_ctl", errno)
	}
	return nil
}
