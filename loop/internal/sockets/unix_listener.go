//go:build unix

package sockets

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// staleTimeout is how long a socket that is there already may take to accept.
const staleTimeout = time.Second

// This file listens on unix sockets that have a path, and gets right what package net leaves to its
// users: a socket that a process left behind is replaced, two processes that start at once do not
// both replace it, and no process removes the socket of its successor.

// listenUnix listens on path by lc. A socket there that refuses connections is stale, and is
// replaced; one that a process listens on, and anything that is not a socket, stays, with the error
// EADDRINUSE. Names that begin with @ are abstract: they have no file. The file is removed when the
// listener is closed, if it is still the one that was made here.
func listenUnix(ctx context.Context, lc net.ListenConfig, path string) (net.Listener, error) {
	if strings.HasPrefix(path, "@") {
		return lc.Listen(ctx, "unix", path)
	}
	defer lock(path)()
	removeStale(path)
	ln, err := lc.Listen(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	return ownUnix(ln.(*net.UnixListener)), nil
}

// ownUnix makes ln remove its file as a listener of listenUnix does: only if it is its own.
func ownUnix(ln *net.UnixListener) net.Listener {
	ln.SetUnlinkOnClose(false)
	l := &unixListener{UnixListener: ln, path: ln.Addr().String()}
	if whole, err := filepath.Abs(l.path); err == nil { // the program may change its directory
		l.path = whole
	}
	l.file, _ = os.Lstat(l.path)
	return l
}

type unixListener struct {
	*net.UnixListener
	path string
	file os.FileInfo // nil if it has gone already
	once sync.Once

	leaves atomic.Bool
}

// Close removes the file and stops listening.
func (l *unixListener) Close() error {
	l.once.Do(func() {
		if !l.leaves.Load() {
			l.unlink()
		}
	})
	return l.UnixListener.Close()
}

// Own says whether Close removes the file. If not, it belongs to another process, which has the same
// socket. A listener owns its file at first.
func (l *unixListener) Own(on bool) { l.leaves.Store(!on) }

// unlink goes by device and inode. The number cannot have been given to another file: the system
// keeps the inode of a bound socket until that is closed.
func (l *unixListener) unlink() {
	if l.file == nil {
		return
	}
	defer lock(l.path)()
	if now, err := os.Lstat(l.path); err == nil && os.SameFile(l.file, now) {
		_ = os.Remove(l.path)
	}
}

// removeStale removes a socket that refuses connections. lock is held.
func removeStale(path string) {
	if isFile(path) {
		return
	}
	c, err := net.DialTimeout("unix", path, staleTimeout)
	if err == nil {
		_ = c.Close()
		return
	}
	if errors.Is(err, syscall.ECONNREFUSED) {
		_ = os.Remove(path)
	}
}

// lock keeps other processes that listen by listenUnix out of path's directory, so that looking
// at a socket and replacing it are one step, and returns what ends that. The lock is the
// directory's own: it leaves no file behind. A process goes without if it may not read the
// directory, or does not get the lock within a second: any reader of a directory can lock it for
// good, and those that listen have it for an instant.
func lock(path string) (unlock func()) {
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return func() {}
	}
	for tries := 0; tries < 100; tries++ {
		if err = unix.Flock(int(dir.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != unix.EWOULDBLOCK && err != unix.EINTR {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	return func() { _ = dir.Close() } // which ends the lock
}
