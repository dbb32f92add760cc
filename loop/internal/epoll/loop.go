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

	// disarmAfter is how many rounds in a row have found something when Go's poller is told not to
	// listen any more.
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
// looks once more: the kernel does not tell again of an instance that it has told of before.
//
// The loop waits until its next tick, by a deadline of the file. Another goroutine wakes it by a
// deadline that is over, which costs no system call.
//
// A field is the loop's own unless its comment says otherwise.
type epollLoop struct {
	*engine.Queue // of what other goroutines want; any may use it

	host     engine.Host
	index    int       // for errors
	base     time.Time // what ticks count from
	fd       int       // the epoll instance
	outer    int       // the second instance
	file     *os.File  // which has outer, for Go's poller; any may set its deadline
	disarmed bool
	tick     time.Duration // when the loop is to tick, or engine.Never
	deadline time.Duration // when the loop ends its waiting, if nobody has woken it
	watched  []pollee      // as many as there were at most: events tell places, so that they cannot move
	free     []int32       // places that are nil in watched
	left     []int32       // those that become free with the next look: events of this one may tell them
	events   [pollBatch]unix.EpollEvent
	again    bool  // the loop wants another turn
	err      error // why the loop ends, if nobody has asked for it

	input   []byte         // what sockets read into
	packets *sockets.Batch // what UDP sockets read into

	// Any goroutine may use these.
	probed  atomic.Bool    // Host.OnProbe is to be called
	wanted  atomic.Bool    // others want a turn, or have put something into the queue
	resting atomic.Bool    // the loop waits, or is about to, and nobody has woken it
	leaving atomic.Bool    // the loop is to end
	running sync.WaitGroup // the goroutine
}

// A pollee is told what epoll says of its descriptor.
type pollee interface {
	polled(events uint32)
	release() // when the loop has ended
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
		l.tellEnd(engine.ErrEnded)
		l.host.Ended(fmt.Errorf("loop: event loop %d ended: %w", l.index, err))
	}
}

// poll waits and does what there is to do, until the loop is to end, or there is an error.
func (l *epollLoop) poll() error {
	raw, err := l.file.SyscallConn()
	for err == nil || errors.Is(err, os.ErrDeadlineExceeded) { // it is to tick, or was woken
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

// rounds does what there is to do. Go's poller calls it at the start, after each event, and
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
			l.arm(true) // the kernel tells of what comes from here on; another round finds what came before
		}
		if l.tick < l.deadline { // one that is later costs nothing: the loop looks once for nothing
			l.deadline = l.tick
			_ = l.file.SetReadDeadline(l.base.Add(l.tick))
		}
		l.resting.Store(true)
		if l.leaving.Load() || !l.wanted.Load() { // who comes from here on wakes it
			return l.leaving.Load()
		}
	}
}

// arm has Go's poller hear of the loop's epoll instance, or not.
func (l *epollLoop) arm(hears bool) {
	events := uint32(0)
	if hears {
		events = unix.EPOLLIN
	}
	l.disarmed = !hears
	if err := rawControl(l.outer, unix.EPOLL_CTL_MOD, l.fd, &unix.EpollEvent{Events: events}); err != nil {
		l.fail(err)
	}
}

// round passes on what has happened, and reports whether to look again before the loop waits: as
// long as there was something.
//
// A turn that was asked for before comes after what has happened: nobody waits for it who was
// there before.
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
		if who := l.watched[ev.Fd]; who != nil { // otherwise an event before this one has ended it
			who.polled(ev.Events)
		}
	}
	if l.probed.Load() && l.probed.Swap(false) {
		l.host.OnProbe()
	}
	if wanted {
		for range l.Len() { // what is put meanwhile comes after the next look at the sockets
			if f := l.Next(); f != nil {
				f()
			}
		}
	}
	if turn {
		l.again = false // what sockets asked for comes now, too
		l.host.OnWake()
	}
	if l.tick != engine.Never && time.Since(l.base) >= l.tick {
		l.tick = engine.Never
		l.host.OnTick()
	}
	return (n != 0 || l.again || l.wanted.Load()) && !l.leaving.Load()
}

// fail ends the loop with an error.
func (l *epollLoop) fail(err error) {
	l.err = err
	l.leaving.Store(true)
}

// add begins to watch fd.
func (l *epollLoop) add(fd int, events uint32, who pollee) (place int32, err error) {
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
	l.watched[place] = who
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

// tellEnd tells the sockets that the loop has ended.
func (l *epollLoop) tellEnd(err error) {
	for _, who := range l.watched {
		if s, ok := who.(*socket); ok && !s.ended {
			s.over(err)
		}
	}
}

// close closes what is left when the loop has ended.
func (l *epollLoop) close() {
	for _, who := range l.watched {
		if who != nil {
			who.release()
		}
	}
	_ = l.file.Close() // of nil, too
	_ = unix.Close(l.fd)
}

// rawControl is epoll_ctl, which does not wait, without telling Go's scheduler: see sockets.MaxRaw.
func rawControl(epoll, op, fd int, event *unix.EpollEvent) error {
	_, _, errno := syscall.RawSyscall6(unix.SYS_EPOLL_CTL, uintptr(epoll), uintptr(op), uintptr(fd),
		uintptr(unsafe.Pointer(event)), 0, 0)
	if errno != 0 {
		return os.NewSyscallError("epoll_ctl", errno)
	}
	return nil
}
