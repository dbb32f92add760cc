//go:build linux && !386 && !s390x

package epoll

import (
	"errors"
	"os"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/loopwheel/loopwheel/loop/internal/engine"
	"github.com/loopwheel/loopwheel/loop/internal/taskloop"
)

const (
	// pollBatch is how many events are taken at once.
	pollBatch = 128

	// disarmAfter is how many rounds in a row have found something when Go's poller is told not to
	// listen any more.
	disarmAfter = 2

	// proofTimeout is how long a loop may take to show that it can be woken. It is idle then, but
	// the machine may be busy.
	proofTimeout = 10 * time.Second
)

var (
	errNoTimer = errors.New("loop: the event loop is not woken by its timer")
	errNoWake  = errors.New("loop: the event loop is not woken by other goroutines")
)

// longAgo is a deadline that is over.
var longAgo = time.Unix(1, 0)

// poller is a loop's own epoll instance, with all its sockets and its timer in it. The loop's
// goroutine stays in run as long as it lives.
//
// The loop waits in Go's own poller. A goroutine that waits in epoll_wait itself keeps its P until
// the runtime's monitor has looked for it some 50 times, and keeps the monitor awake meanwhile.
//
// Go's poller does not watch the instance itself, but a second one, in which the first is the only
// entry. While the loop is busy that entry is disarmed: otherwise each arrival would wake a thread
// in Go's poller, for a loop that is awake. Before it waits the loop arms the entry again, and
// looks once more: the kernel does not tell again of an instance that it has told of before.
//
// But for what says so, all of it belongs to the loop: there is no lock.
type poller struct {
	loop     *eventLoop
	fd       int
	outer    int      // the second instance
	file     *os.File // a copy of outer, for Go's poller
	disarmed bool
	timer    *timer
	entries  []entry // as many as there were at most: events tell places, so that they cannot move
	free     []int32
	events   [pollBatch]unix.EpollEvent
	again    bool        // the loop wants another turn
	leaving  atomic.Bool // run is to return; any goroutine may set it
	err      error       // why run returns, if nobody has asked for it
	requests requests
}

// A pollee is told what epoll says of its descriptor.
type pollee interface {
	polled(events uint32)
}

// An entry is a descriptor that is watched. Events carry its place and generation, so that one that
// was taken together with others, and whose descriptor they have closed, reaches nobody.
type entry struct {
	pollee     pollee // nil: free
	generation int32
}

// requests are what other goroutines want the loop to do, besides its queue. Any goroutine may use
// them. A loop that waits is woken by Go's scheduler, as one goroutine wakes another, which costs
// no system call: what waits in Go's poller gives up when its deadline is over.
type requests struct {
	turn    atomic.Bool // a turn is wanted
	called  atomic.Bool // the queue has something
	resting atomic.Bool // the loop waits, or is about to, and nobody has woken it
}

// newPoller returns the poller of a loop that ticks by the time since base. close must be called in
// each case.
func newPoller(l *eventLoop, base time.Time) (p *poller, err error) {
	p = &poller{loop: l, fd: -1, outer: -1}
	l.Queue = taskloop.NewQueue(p.call)
	if p.fd, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return p, os.NewSyscallError("epoll_create1", err)
	}
	if p.outer, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return p, os.NewSyscallError("epoll_create1", err)
	}
	if err := rawControl(p.outer, unix.EPOLL_CTL_ADD, p.fd, &unix.EpollEvent{Events: unix.EPOLLIN}); err != nil {
		return p, err
	}
	if p.timer, err = newTimer(l, base); err != nil {
		return p, err
	}
	fd, err := unix.FcntlInt(uintptr(p.outer), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return p, os.NewSyscallError("dup", err)
	}
	if err := unix.SetNonblock(fd, true); err != nil { // os.NewFile takes it for pollable then
		return p, errors.Join(os.NewSyscallError("fcntl", err), unix.Close(fd))
	}
	p.file = os.NewFile(uintptr(fd), "epoll")
	// Each report of the timer is for one that was set: it need not be read.
	_, err = p.add(p.timer.fd, unix.EPOLLIN|unix.EPOLLET, p.timer)
	return p, err
}

// prove has the loop, which runs, show that its timer and other goroutines wake it.
func (p *poller) prove(within time.Duration) error {
	deadline := time.Now().Add(within)
	await := func(c <-chan struct{}, otherwise error) error {
		select {
		case <-c:
			return nil
		case <-time.After(time.Until(deadline)):
			return otherwise
		case <-p.loop.Ended():
			return engine.ErrEnded
		}
	}
	rung, heard := make(chan struct{}), make(chan struct{})
	p.loop.Execute(func() {
		p.timer.proof = rung
		p.timer.ringSoon()
	})
	if err := await(rung, errNoTimer); err != nil {
		return err
	}
	for !p.requests.resting.Load() { // it is awake
		if time.Now().After(deadline) {
			return errNoWake
		}
		runtime.Gosched()
	}
	p.loop.Execute(func() { close(heard) })
	return await(heard, errNoWake)
}

// run polls until leave is called, and returns nil, or until that fails.
func (p *poller) run() error {
	raw, err := p.file.SyscallConn()
	if err == nil {
		err = raw.Read(p.rounds)
	}
	for errors.Is(err, os.ErrDeadlineExceeded) { // somebody has woken it
		if err = p.file.SetReadDeadline(time.Time{}); err == nil {
			err = raw.Read(p.rounds)
		}
	}
	if p.leaving.Load() {
		return p.err
	}
	return errors.Join(p.err, err)
}

// rounds does what there is to do. Go's poller calls it at the start, after each event, and
// sometimes without one.
func (p *poller) rounds(uintptr) (leave bool) {
	r := &p.requests
	for {
		r.resting.Store(false)
		for n := 1; ; n++ {
			if p.round() {
				if n == disarmAfter && !p.disarmed {
					p.arm(false)
				}
				continue
			}
			if !p.disarmed {
				break
			}
			n = 0
			p.arm(true) // the kernel tells of what comes from here on; another round finds what came before
		}
		r.resting.Store(true)
		if p.leaving.Load() || !r.pending() { // who comes from here on wakes it
			return p.leaving.Load()
		}
	}
}

// arm has Go's poller hear of the loop's epoll instance, or not.
func (p *poller) arm(hears bool) {
	events := uint32(0)
	if hears {
		events = unix.EPOLLIN
	}
	p.disarmed = !hears
	if err := rawControl(p.outer, unix.EPOLL_CTL_MOD, p.fd, &unix.EpollEvent{Events: events}); err != nil {
		p.fail(err)
	}
}

// round passes on what has happened, and reports whether to look again before the loop waits: as
// long as there was something.
//
// A turn that was asked for before comes after what has happened: nobody waits for it who was
// there before.
func (p *poller) round() (more bool) {
	wanted := p.requests.pending()
	asked := p.again
	n, _, errno := syscall.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(p.fd),
		uintptr(unsafe.Pointer(&p.events[0])), pollBatch, 0, 0, 0)
	if errno == unix.EINTR {
		return true
	}
	if errno != 0 {
		p.fail(os.NewSyscallError("epoll_pwait", errno))
		return false
	}
	for _, ev := range p.events[:n] {
		if e := p.entries[ev.Fd]; e.pollee != nil && e.generation == ev.Pad {
			e.pollee.polled(ev.Events)
		}
	}
	if wanted && p.runRequests() {
		asked = true
	}
	if asked {
		p.again = false // what sockets asked for comes now, too
		p.loop.engine.host.OnWake(p.loop.index)
	}
	return (n != 0 || p.again || p.requests.pending()) && !p.leaving.Load()
}

// fail has run return an error.
func (p *poller) fail(err error) {
	p.err = err
	p.leaving.Store(true)
}

// leave has run return. Any goroutine may call it.
func (p *poller) leave() {
	p.leaving.Store(true)
	p.wakeUp()
}

// wake has the loop take a turn. Any goroutine may call it.
func (p *poller) wake() {
	p.requests.turn.Store(true)
	p.wakeUp()
}

// call has the loop look into its queue. Any goroutine may call it.
func (p *poller) call() {
	p.requests.called.Store(true)
	p.wakeUp()
}

// wakeUp wakes the loop if it waits. A loop that is awake looks at its requests before it waits. If
// something else wakes it at the same time, it looks once for nothing.
func (p *poller) wakeUp() {
	if p.requests.resting.Load() && p.requests.resting.Swap(false) {
		_ = p.file.SetReadDeadline(longAgo) // fails if the loop has ended
	}
}

// pending reports whether the loop is wanted.
func (r *requests) pending() bool { return r.turn.Load() || r.called.Load() }

// runRequests does what others want to be done, and reports whether a turn is wanted, too. Requests
// that come meanwhile are done after the next look at the sockets.
func (p *poller) runRequests() (turn bool) {
	if p.requests.called.Swap(false) {
		for range p.loop.Len() {
			if f := p.loop.Next(); f != nil {
				f()
			}
		}
	}
	return p.requests.turn.Swap(false)
}

// add begins to watch fd.
func (p *poller) add(fd int, events uint32, who pollee) (place int32, err error) {
	if n := len(p.free); n > 0 {
		place = p.free[n-1]
		p.free = p.free[:n-1]
	} else {
		place = int32(len(p.entries))
		p.entries = append(p.entries, entry{})
	}
	e := &p.entries[place]
	e.generation++
	if err := p.control(unix.EPOLL_CTL_ADD, fd, place, events); err != nil {
		p.free = append(p.free, place)
		return 0, err
	}
	e.pollee = who
	return place, nil
}

// remove must be called before fd is closed.
func (p *poller) remove(place int32, fd int) {
	_ = rawControl(p.fd, unix.EPOLL_CTL_DEL, fd, nil)
	p.entries[place].pollee = nil
	p.free = append(p.free, place)
}

// control adds fd, or changes what it is watched for.
func (p *poller) control(op, fd int, place int32, events uint32) error {
	ev := unix.EpollEvent{Events: events, Fd: place, Pad: p.entries[place].generation}
	return rawControl(p.fd, op, fd, &ev)
}

// tellEnd tells the sockets that the loop has ended.
func (p *poller) tellEnd(err error) {
	for _, e := range p.entries {
		if s, ok := e.pollee.(*socket); ok && !s.closed && !s.ended {
			s.over(err)
		}
	}
}

// closeAll closes what is left when the loop has ended.
func (p *poller) closeAll() {
	for _, e := range p.entries {
		switch x := e.pollee.(type) {
		case *socket:
			_ = unix.Close(x.fd)
		case *packets:
			_ = x.Socket.Close()
		}
	}
	p.close()
}

// close gives back what the poller itself has.
func (p *poller) close() {
	_ = p.file.Close() // of nil, too
	if p.timer != nil {
		_ = unix.Close(p.timer.fd)
	}
	for _, fd := range []int{p.fd, p.outer} {
		if fd >= 0 {
			_ = unix.Close(fd)
		}
	}
}

// rawControl is epoll_ctl, which does not wait, without telling Go's scheduler: see maxRaw.
func rawControl(epoll, op, fd int, event *unix.EpollEvent) error {
	_, _, errno := syscall.RawSyscall6(unix.SYS_EPOLL_CTL, uintptr(epoll), uintptr(op), uintptr(fd),
		uintptr(unsafe.Pointer(event)), 0, 0)
	if errno != 0 {
		return os.NewSyscallError("epoll_ctl", errno)
	}
	return nil
}

// rawClose closes a socket, in the same way. None of ours lingers in close.
func rawClose(fd int) { _, _, _ = syscall.RawSyscall(unix.SYS_CLOSE, uintptr(fd), 0, 0) }
