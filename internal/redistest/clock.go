package redistest

import (
	_ "embed"
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// EmbeddedWithClock is Embedded whose clock step sets, by d from that of the bubble. It has passed by
// a millisecond when that one has.
func EmbeddedWithClock(t testing.TB) (client *redis.Client, step func(d time.Duration)) {
	m, client := Embedded(t)
	var offset atomic.Int64
	m.SetTime(time.Now())
	tick, ended := time.NewTicker(time.Millisecond), make(chan struct{})
	go func() {
		defer tick.Stop()
		for {
			select {
			case now := <-tick.C:
				m.SetTime(now.Add(time.Duration(offset.Load())))
			case <-ended:
				return
			}
		}
	}()
	t.Cleanup(func() { close(ended) })
	return client, func(d time.Duration) {
		offset.Store(int64(d))
		m.SetTime(time.Now().Add(d))
	}
}

// clockSource has redis-server read the time with an offset.
//
//go:embed testdata/clock.c
var clockSource []byte

// StartWithClock is Start of a server whose clock step sets, by d from the machine's. It needs gcc.
func StartWithClock(t testing.TB, settings ...string) (s *Server, step func(d time.Duration)) {
	t.Helper()
	Need(t)
	dir := t.TempDir()
	source, library, offset := filepath.Join(dir, "clock.c"), filepath.Join(dir, "clock.so"), filepath.Join(dir, "offset")
	step = func(d time.Duration) {
		t.Helper()
		// In place: the server has mapped the file.
		f, err := os.OpenFile(offset, os.O_CREATE|os.O_WRONLY, 0o600)
		if err == nil {
			_, err = f.Write(binary.NativeEndian.AppendUint64(nil, uint64(d/time.Second)))
			_ = f.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	step(0)
	if err := os.WriteFile(source, clockSource, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("gcc", "-shared", "-fPIC", "-O", "-o", library, source).CombinedOutput(); err != nil {
		t.Skipf("a Redis with a clock of its own needs gcc: %v\n%s", err, out)
	}
	return start(t, []string{"LD_PRELOAD=" + library, "CLOCK_OFFSET=" + offset}, settings), step
}
