package main

import (
	"context"
	"errors"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/loopwheel/loopwheel/demos/kv/aof"
)

// A badFile is a file on a disk that goes bad.
type badFile struct {
	aof.File
	fsync atomic.Pointer[func() error] // nil: as it is
}

func (f *badFile) Sync() error {
	if fsync := f.fsync.Load(); fsync != nil {
		return (*fsync)()
	}
	return f.File.Sync()
}

// startOnBadDisk runs a server whose append-only file is the one that is returned.
func startOnBadDisk(t *testing.T, policy string) (*badFile, string) {
	t.Helper()
	o, err := parse([]string{"-addr", "tcp://127.0.0.1:0", "-dir", t.TempDir(), "-appendfsync", policy}, os.Stdout)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	s := newServer(o, zerolog.Nop(), cancel)
	bad := new(badFile)
	s.openFile = func(path string, flag int, perm os.FileMode) (aof.File, error) {
		f, err := os.OpenFile(path, flag, perm)
		bad.File = f
		return bad, err
	}
	if err := errors.Join(s.load(), s.net.Start(ctx)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		bad.fsync.Store(nil)
		cancel()
		_ = s.net.Wait()
		_ = s.close()
	})
	return bad, s.net.LocalAddr().String()
}

// An fsync that hangs: with always, answers wait for it, while those who ask for nothing that could
// be lost go on; with everysec, nobody waits.
func TestHangingFsync(t *testing.T) {
	for _, policy := range []string{"always", "everysec"} {
		t.Run(policy, func(t *testing.T) {
			bad, addr := startOnBadDisk(t, policy)
			c, other := dial(t, addr), dial(t, addr)
			c.want("SET a 1", "OK")
			began, end := make(chan struct{}, 1), make(chan struct{})
			hang := func() error {
				select {
				case began <- struct{}{}:
				default:
				}
				<-end
				return nil
			}
			bad.fsync.Store(&hang)
			c.send("SET a 2")
			<-began
			other.want("PING", "PONG")
			if policy == "everysec" {
				if got := text(c.read()); got != "OK" {
					t.Error(got)
				}
				other.want("GET a", "2")
				close(end)
				return
			}
			other.send("GET a") // which must not be told before it is safe
			_ = other.conn.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
			if n, err := other.conn.Read(other.room); err == nil {
				t.Errorf("told before it was on disk: %q", other.room[:n])
			}
			close(end)
			if got, told := text(c.read()), text(other.read()); got != "OK" || told != "2" {
				t.Errorf("%s, %s", got, told)
			}
		})
	}
}

// An fsync that fails: what waits for it is refused, and so is every write after it, as nobody can
// know what the disk has. Reads go on.
func TestFailedFsync(t *testing.T) {
	bad, addr := startOnBadDisk(t, "always")
	c := dial(t, addr)
	c.want("SET a 1", "OK")
	fail := func() error { return errors.New("input/output error") }
	bad.fsync.Store(&fail)
	for range 3 {
		if got := c.do("SET a 2"); !strings.HasPrefix(got, "(error) MISCONF") || !strings.Contains(got, "input/output error") {
			t.Error(got)
		}
		bad.fsync.Store(nil) // it does not help that the next one works
	}
	c.want("PING", "PONG")
	c.want("EXISTS a", "1")
}
