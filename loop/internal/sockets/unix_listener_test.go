//go:build unix

package sockets

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"github.com/loopwheel/loopwheel/internal/testkit"
)

func listen(path string) (net.Listener, error) {
	return listenUnix(context.Background(), net.ListenConfig{}, path)
}

// stale leaves a socket at path that nobody listens on.
func stale(t *testing.T, path string) {
	t.Helper()
	ln, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	ln.(*net.UnixListener).SetUnlinkOnClose(false)
	_ = ln.Close()
}

func TestStaleSocketIsReplaced(t *testing.T) {
	path := testkit.SocketPath(t)
	stale(t, path)
	ln, err := listen(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := ln.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("after Close the socket is there: %v", err)
	}
}

func TestOthersStay(t *testing.T) {
	dir := filepath.Dir(testkit.SocketPath(t))
	used, file := filepath.Join(dir, "used"), filepath.Join(dir, "file")
	ln, err := listen(used)
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	if err := os.WriteFile(file, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{used, file} {
		if ln, err := listen(path); !errors.Is(err, syscall.EADDRINUSE) {
			t.Errorf("%s: %v, %v", path, ln, err)
		}
		if _, err := os.Lstat(path); err != nil {
			t.Error(err)
		}
	}
	if !isFile(file) || isFile(used) || isFile(filepath.Join(dir, "none")) {
		t.Error("isFile is wrong")
	}
}

// Of many that find a stale socket at once, one gets its place.
func TestOneOfManyWins(t *testing.T) {
	dir := filepath.Dir(testkit.SocketPath(t))
	for range 50 {
		path := filepath.Join(dir, "s")
		stale(t, path)
		var wg sync.WaitGroup
		listeners := make([]net.Listener, 4)
		for i := range listeners {
			wg.Go(func() { listeners[i], _ = listen(path) })
		}
		wg.Wait()
		won := 0
		for _, ln := range listeners {
			if ln != nil {
				won++
				_ = ln.Close()
			}
		}
		if won != 1 {
			t.Fatalf("%d of %d listen", won, len(listeners))
		}
	}
}

// A server that ends leaves the socket of the one that took its place.
func TestSuccessorKeepsItsSocket(t *testing.T) {
	path := testkit.SocketPath(t)
	old, err := listen(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path); err != nil { // as a deployment script does
		t.Fatal(err)
	}
	next, err := listen(path)
	if err != nil {
		t.Fatal(err)
	}
	defer next.Close()
	if err := old.Close(); err != nil {
		t.Error(err)
	}
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Fatalf("the successor's socket has gone: %v", err)
	}
	_ = c.Close()
}

func TestAbstractNames(t *testing.T) {
	ln, err := listen("@")
	if err != nil {
		t.Skipf("no abstract names on this system, which is no fault: %v", err)
	}
	_ = ln.Close()
}

// Anybody who may read a directory can lock it, and keep the lock.
func TestForeignLockKeepsNobodyOut(t *testing.T) {
	path := testkit.SocketPath(t)
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	if err := syscall.Flock(int(dir.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	ln, err := listen(path)
	if err != nil {
		t.Fatal(err)
	}
	_ = ln.Close()
}
