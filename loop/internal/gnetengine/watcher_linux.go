package gnetengine

import (
	"os"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/loopwheel/loopwheel/loop/internal/engine"
)

// A watcher tells its loop when sockets become writable, or when paused ones break. gnet watches
// for that only on behalf of its own outbound buffer, and does not report it. So sockets that are
// full or paused, and only those, are also in an epoll instance of ours. A goroutine waits for that
// in Go's poller, and makes the loop look into it. All else belongs to the loop.
type watcher struct {
	fd      int
	file    *os.File // of fd; nil before the first use, and after stop
	sockets map[int32]*socket
	due     atomic.Bool // look has something to do
}

// watch asks for one call of s.ready, for one of the events (as of poll(2)) or because s is broken.
func (l *gnetLoop) watch(s *socket, events int16) error {
	w := &l.watcher
	if err := l.startWatcher(); err != nil {
		return err
	}
	op := unix.EPOLL_CTL_MOD
	if w.sockets[int32(s.Descriptor)] == nil {
		op = unix.EPOLL_CTL_ADD
	}
	ev := unix.EpollEvent{Events: uint32(events) | unix.EPOLLONESHOT, Fd: int32(s.Descriptor)}
	if err := unix.EpollCtl(w.fd, op, s.FD(), &ev); err != nil {
		return os.NewSyscallError("epoll_ctl", err)
	}
	w.sockets[ev.Fd] = s
	return nil
}

// unwatch forgets s; it must be called before its descriptor is closed.
func (l *gnetLoop) unwatch(s *socket) {
	delete(l.early, s)
	if w := &l.watcher; w.sockets[int32(s.Descriptor)] != nil {
		delete(w.sockets, int32(s.Descriptor))
		_ = unix.EpollCtl(w.fd, unix.EPOLL_CTL_DEL, s.FD(), nil)
	}
}

// startWatcher makes the epoll instance and its goroutine, if there is none yet.
func (l *gnetLoop) startWatcher() (err error) {
	w := &l.watcher
	select {
	case <-l.Ended():
		return engine.ErrEnded
	default:
	}
	if w.file != nil {
		return nil
	}
	if w.fd, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		l.freeReserve()
		w.fd, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	}
	if l.keepReserve(); err != nil {
		return os.NewSyscallError("epoll_create1", err)
	}
	_ = unix.SetNonblock(w.fd, true) // os.NewFile takes it for pollable then
	w.file, w.sockets = os.NewFile(uintptr(w.fd), "epoll"), make(map[int32]*socket)
	raw, err := w.file.SyscallConn()
	if err != nil {
		w.stop()
		return err
	}
	go func() {
		_ = raw.Read(func(uintptr) (done bool) { // at once, and after each event, until stop
			w.due.Store(true)
			l.pull()
			return false
		})
	}()
	return nil
}

// look serves the sockets that are ready now, as far as one call of epoll_wait tells. What becomes
// ready meanwhile has its turn after the next poll.
func (l *gnetLoop) look() {
	w := &l.watcher
	if !w.due.Load() || w.file == nil {
		return
	}
	w.due.Store(false)
	var events [128]unix.EpollEvent
	n, err := unix.EpollWait(w.fd, events[:], 0)
	if n == len(events) || err == unix.EINTR {
		w.due.Store(true)
		l.pull()
	}
	for _, ev := range events[:max(n, 0)] {
		if s := w.sockets[ev.Fd]; s != nil {
			s.ready()
		}
	}
}

// lacks returns how many descriptors startWatcher will take.
func (w *watcher) lacks() int {
	if w.file == nil {
		return 1
	}
	return 0
}

// stop ends the goroutine, without a call to the sockets that wait.
func (w *watcher) stop() {
	if w.file != nil {
		_ = w.file.Close()
		w.file, w.sockets = nil, nil
	}
}
