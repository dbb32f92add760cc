//go:build !386 && !s390x

package gnetengine

import (
	"context"
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	gneterrors "github.com/panjf2000/gnet/v2/pkg/errors"
	"golang.org/x/sys/unix"
)

const (
	// pollBatch is how many events are taken at once.
	pollBatch = 128

	// fewEvents at once, or fewer, are what a look behind them may be too dear for.
	fewEvents = 2

	// mostVain limits how seldom a loop that waits has looked a second time: once in 2^mostVain waits.
	mostVain = 5

	// proofTimeout is how long a loop may take to show that it hears its poller. It is idle then,
	// but the machine may be busy.
	proofTimeout = 10 * time.Second
)

var errDeaf = errors.New("loop: the event loop does not hear its poller")

// longAgo is a deadline that is over.
var longAgo = time.Unix(1, 0)

// poller is a loop's own epoll instance, with all its sockets and its bell in it, and a tap by which
// other goroutines wake it. The loop, a goroutine of gnet's, stays in run as long as it lives.
//
// It waits in Go's own poller, to which the instance is one file. A goroutine that waits in
// epoll_wait itself, as gnet's loops do, keeps its P until the runtime's monitor has looked for it
// some 50 times, and gnet wakes another thread first, which finds nothing: that is more than what
// an echo costs otherwise.
//
// But for what says so, all of it belongs to the loop: there is no lock.
type poller struct {
	fd      int
	file    *os.File // a copy of fd, for Go's poller
	bell    *bell
	tap     tap
	turn    func()  // of the loop
	entries []entry // as many as there were at most: events tell places, so that they cannot move
	free    []int32
	events  [pollBatch]unix.EpollEvent
	again   bool        // the loop wants another turn
	tried   bool        // the next look is one that likely has asked for
	vain    uint8       // how many of these in a row have found nothing, mostVain at most
	skip    uint8       // how often to wait without one
	leaving atomic.Bool // run is to return; any goroutine may set it
	err     error       // why it has, if nobody has asked for it
	proof   chan error  // nil: its bell has rung
	proven  bool
	woken   bool // by Go's poller
}

// A pollee is told what epoll says of its descriptor, and says whether the loop has to look again
// before it waits: whether there may be more that epoll does not report by itself.
type pollee interface {
	polled(events uint32) (look bool)
}

// An entry is a descriptor that is watched. Events carry its place and generation, so that one that
// was taken together with others, and whose descriptor they have closed, reaches nobody.
type entry struct {
	pollee     pollee // nil: free
	generation int32
}

// A tap has what other goroutines want the loop to do, and wakes it if it waits. That is done by
// Go's scheduler, as one goroutine wakes another, and costs no system call: what waits in Go's
// poller gives up when its deadline is over.
type tap struct {
	wanted  atomic.Bool // a turn is
	called  atomic.Bool // tasks has something
	resting atomic.Bool // the loop waits, or is about to, and nobody has woken it

	mu    sync.Mutex
	tasks []func()
}

// newPoller returns a poller whose loop takes turns by turn. close must be called in each case.
func newPoller(turn func()) (p *poller, err error) {
	p = &poller{fd: -1, turn: turn, proof: make(chan error, 1)}
	if p.fd, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return p, os.NewSyscallError("epoll_create1", err)
	}
	if p.bell, err = newBell(); err != nil {
		return p, err
	}
	fd, err := unix.FcntlInt(uintptr(p.fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return p, os.NewSyscallError("dup", err)
	}
	if err := unix.SetNonblock(fd, true); err != nil { // os.NewFile takes it for pollable then
		return p, errors.Join(os.NewSyscallError("fcntl", err), unix.Close(fd))
	}
	p.file = os.NewFile(uintptr(fd), "epoll")
	_, err = p.add(p.bell.fd, unix.EPOLLIN|unix.EPOLLET, p.bell)
	return p, err
}

// startPoller has l stay in a poller of its own, if that works here.
func (l *eventLoop) startPoller() error {
	p, err := newPoller(func() { l.engine.host.Turn(l.index) })
	if err != nil {
		p.close()
		return err
	}
	if err = l.stayIn(p, proofTimeout); err == nil {
		l.poll = p
	}
	return err
}

// stayIn has l stay in p, which has to prove first that it works: its bell must ring in time. If
// not, p is closed.
func (l *eventLoop) stayIn(p *poller, within time.Duration) error {
	began := time.Now()
	p.bell.base = kernelTime(began)
	p.bell.ring = func() { p.prove(time.Since(began)) }
	p.bell.Publish(time.Millisecond) // it is likely to wait by then
	if err := l.gnet.Execute(context.Background(), staying{p}); err != nil {
		p.close()
		return err
	}
	err := errDeaf
	select {
	case err = <-p.proof:
	case <-time.After(within):
	case <-l.ended:
	}
	if err != nil {
		p.leaving.Store(true)
		_ = p.file.Close() // which a loop hears that hears nothing else
		l.execute(p.close)
	}
	return err
}

// prove is what the bell rings for. A loop that has not been woken yet proves nothing.
func (p *poller) prove(now time.Duration) {
	if !p.woken {
		p.bell.Publish(now + time.Millisecond)
		return
	}
	p.proven = true
	p.proof <- nil
}

// staying is the gnet.Runnable that a loop does not come back from until it is to end.
type staying struct{ poll *poller }

func (s staying) Run(context.Context) error {
	p := s.poll
	p.run()
	switch {
	case p.err == nil:
		return nil
	case !p.proven:
		p.proof <- p.err
		return nil
	}
	return gneterrors.ErrEngineShutdown // ends the loop
}

// run polls until leave is called, or that fails.
func (p *poller) run() {
	raw, err := p.file.SyscallConn()
	if err == nil {
		err = raw.Read(p.rounds)
	}
	for errors.Is(err, os.ErrDeadlineExceeded) { // somebody has knocked
		p.woken = false
		if err = p.file.SetReadDeadline(time.Time{}); err == nil {
			err = raw.Read(p.rounds)
		}
	}
	if p.err == nil && !p.leaving.Load() {
		p.err = err
	}
}

// rounds is what Go's poller calls when something has happened: at first, too, and for nothing now
// and then.
func (p *poller) rounds(uintptr) (leave bool) {
	t := &p.tap
	for {
		t.resting.Store(false)
		for p.round() {
		}
		t.resting.Store(true)
		if p.leaving.Load() || !t.pending() { // who comes from here on knocks
			p.woken = true // if it comes back here
			return p.leaving.Load()
		}
	}
}

// round passes on what has happened, and reports whether to look again before the loop waits.
//
// A turn that was asked for before comes behind what has happened: nobody waits for it who was
// there before.
func (p *poller) round() (more bool) {
	wanted := p.tap.pending()
	asked := p.again
	n, _, errno := syscall.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(p.fd),
		uintptr(unsafe.Pointer(&p.events[0])), pollBatch, 0, 0, 0)
	if errno != 0 {
		return p.failed(errno)
	}
	look := n == pollBatch
	for _, ev := range p.events[:n] {
		if e := p.entries[ev.Fd]; e.pollee != nil && e.generation == ev.Pad && e.pollee.polled(ev.Events) {
			look = true
		}
	}
	if wanted && p.tap.run() {
		asked = true
	}
	if asked {
		p.again = false // what sockets asked for comes now, too
		p.turn()
	}
	return (p.likely(int(n)) || look || p.again) && !p.leaving.Load()
}

// likely reports whether another look may find something, when the last one has found n events and
// nothing is left of these. Whatever comes now wakes a loop that waits, so it is a question of cost
// only: a look in vain is one of four system calls of a loop that waits for each message, and to
// wait for what is there already costs more than a look. The more looks in a row were in vain, the
// more are left out.
func (p *poller) likely(n int) bool {
	tried := p.tried
	p.tried = false
	switch {
	case n == 0:
		if tried {
			p.vain = min(p.vain+1, mostVain)
			p.skip = 1<<p.vain - 1
		}
		return false
	case tried:
		p.vain = 0
	case n > fewEvents: // a look costs little for each
		return true
	case p.skip > 0:
		p.skip--
		return false
	}
	p.tried = true
	return true
}

func (p *poller) failed(errno syscall.Errno) (more bool) {
	if errno == unix.EINTR {
		return true
	}
	p.err = os.NewSyscallError("epoll_pwait", errno)
	p.leaving.Store(true)
	return false
}

// leave has run return. Any goroutine may call it.
func (p *poller) leave() {
	p.leaving.Store(true)
	p.knock()
}

// wake has the loop take a turn. Any goroutine may call it.
func (p *poller) wake() {
	p.tap.wanted.Store(true)
	p.knock()
}

// more has it take one more, after a look at its sockets.
func (p *poller) more() { p.again = true }

// execute has f run on the loop. Any goroutine may call it.
func (p *poller) execute(f func()) {
	t := &p.tap
	t.mu.Lock()
	t.tasks = append(t.tasks, f)
	t.called.Store(true)
	t.mu.Unlock()
	p.knock()
}

// knock wakes the loop if it waits. One that is awake looks at the tap before it does: whoever
// knocks has said there what is wanted. A knock that is late, as the loop has been woken by
// something else meanwhile, has it look once for nothing.
func (p *poller) knock() {
	if p.tap.resting.Load() && p.tap.resting.Swap(false) {
		_ = p.file.SetReadDeadline(longAgo) // fails if the loop has ended
	}
}

// pending reports whether the loop is wanted.
func (t *tap) pending() bool { return t.wanted.Load() || t.called.Load() }

// run does what others want to be done, and reports whether a turn is wanted, too.
func (t *tap) run() (turn bool) {
	if t.called.Load() {
		t.mu.Lock()
		tasks := t.tasks
		t.tasks = nil
		t.called.Store(false)
		t.mu.Unlock()
		for _, f := range tasks {
			f()
		}
	}
	return t.wanted.Swap(false)
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

// modify changes what fd is watched for.
func (p *poller) modify(place int32, fd int, events uint32) error {
	return p.control(unix.EPOLL_CTL_MOD, fd, place, events)
}

// remove must be called before fd is closed.
func (p *poller) remove(place int32, fd int) {
	_ = rawControl(p.fd, unix.EPOLL_CTL_DEL, fd, nil)
	p.entries[place].pollee = nil
	p.free = append(p.free, place)
}

func (p *poller) control(op, fd int, place int32, events uint32) error {
	ev := unix.EpollEvent{Events: events, Fd: place, Pad: p.entries[place].generation}
	return rawControl(p.fd, op, fd, &ev)
}

// end tells the sockets that the loop has ended, and returns why.
func (p *poller) end(err error) error {
	for _, e := range p.entries {
		if d, ok := e.pollee.(*direct); ok && !d.closed && !d.ended {
			d.over(err)
		}
	}
	return p.err
}

// close gives back what the poller itself has.
func (p *poller) close() {
	_ = p.file.Close() // of nil, too
	if p.bell != nil {
		_ = unix.Close(p.bell.fd)
	}
	if p.fd >= 0 {
		_ = unix.Close(p.fd)
	}
}

// stop closes what is left when the loop has ended.
func (p *poller) stop() {
	for _, e := range p.entries {
		switch x := e.pollee.(type) {
		case *direct:
			_ = unix.Close(x.fd)
		case *attempt:
			_ = unix.Close(x.fd)
		case *packets:
			_ = x.Socket.Close()
		}
	}
	p.close()
}
