package gnetengine

import (
	"errors"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// watcher tells when sockets become writable, or when paused ones break. gnet watches for that only
// on behalf of its own outbound buffer, and says nothing. So sockets that are full or paused, and
// only those, are also in an epoll instance of ours, whose descriptor in turn is watched by Go's
// own poller: one parked goroutine for all of them, started with the first.
type watcher struct {
	notify func(*socket)

	mu      sync.Mutex
	file    *os.File
	fd      int
	sockets map[int32]*socket
	stopped bool
	done    chan struct{}
}

var errWatcherStopped = errors.New("loop: the watcher has stopped")

// add asks for one call of notify, for one of the events (as of poll(2)) or because s is broken.
func (w *watcher) add(s *socket, events int16) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.start(); err != nil {
		return err
	}
	op := unix.EPOLL_CTL_ADD
	if s.is(markWatched) {
		op = unix.EPOLL_CTL_MOD
	}
	ev := unix.EpollEvent{Events: uint32(events) | unix.EPOLLONESHOT, Fd: s.fd}
	if err := unix.EpollCtl(w.fd, op, s.FD(), &ev); err != nil {
		return os.NewSyscallError("epoll_ctl", err)
	}
	w.sockets[ev.Fd] = s
	return nil
}

// remove forgets s; it must be called before its descriptor is closed.
func (w *watcher) remove(s *socket) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.sockets, s.fd)
	if w.file != nil {
		_ = unix.EpollCtl(w.fd, unix.EPOLL_CTL_DEL, s.FD(), nil)
	}
}

// start makes the epoll instance and its goroutine, if there is none yet. w.mu is held.
func (w *watcher) start() error {
	if w.stopped {
		return errWatcherStopped
	}
	if w.file != nil {
		return nil
	}
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return os.NewSyscallError("epoll_create1", err)
	}
	if err := unix.SetNonblock(fd, true); err != nil { // os.NewFile takes it for pollable then
		_ = unix.Close(fd)
		return os.NewSyscallError("fcntl", err)
	}
	w.fd, w.file = fd, os.NewFile(uintptr(fd), "epoll")
	w.sockets = make(map[int32]*socket)
	w.done = make(chan struct{})
	raw, err := w.file.SyscallConn()
	if err != nil {
		_ = w.file.Close()
		w.file = nil
		return err
	}
	go func() {
		defer close(w.done)
		_ = raw.Read(w.drain) // until stop closes the file
	}()
	return nil
}

// drain passes on what is ready, and asks to be called again when more is.
func (w *watcher) drain(fd uintptr) (done bool) {
	var events [128]unix.EpollEvent
	for {
		n, err := unix.EpollWait(int(fd), events[:], 0)
		if err == unix.EINTR {
			continue
		}
		if n <= 0 {
			return err != nil
		}
		for _, ev := range events[:n] {
			if s := w.take(ev.Fd); s != nil {
				w.notify(s)
			}
		}
	}
}

func (w *watcher) take(fd int32) *socket {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.sockets[fd]
	delete(w.sockets, fd)
	return s
}

// stop ends the goroutine. Sockets that were waiting are not told.
func (w *watcher) stop() {
	w.mu.Lock()
	w.stopped = true
	file := w.file
	w.file = nil
	w.mu.Unlock()
	if file != nil {
		_ = file.Close()
		<-w.done
	}
}
