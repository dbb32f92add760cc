// Package stalls tells when the machine itself was late, whatever the program that is measured:
// what a thread that only sleeps has to wait for, no server can be quicker than.
package stalls

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// A Stall is a time in which a thread that only sleeps was not run though it should have been.
type Stall struct{ From, To time.Time }

const (
	nap = 500 * time.Microsecond

	// least is from when on it is one, beyond what the thread wanted to sleep.
	least = 500 * time.Microsecond
)

// Print tells the stalls of each core on standard output, until standard input ends: one thread for
// each, bound to it, that sleeps for half a millisecond again and again. It is what the process
// does that Watch starts.
func Print() {
	out := make(chan Stall, 1024)
	for core := range runtime.NumCPU() {
		go func() {
			runtime.LockOSThread()
			var set unix.CPUSet
			set.Set(core)
			_ = unix.SchedSetaffinity(0, &set)
			sleep(out)
		}()
	}
	go func() {
		for s := range out {
			fmt.Println(s.From.UnixMicro(), s.To.UnixMicro())
		}
	}()
	_, _ = io.Copy(io.Discard, os.Stdin)
}

func sleep(out chan<- Stall) {
	for {
		from := time.Now()
		ts := unix.NsecToTimespec(nap.Nanoseconds())
		_ = unix.Nanosleep(&ts, nil)
		if to := time.Now(); to.Sub(from) > nap+least {
			out <- Stall{from.Add(nap), to}
		}
	}
}

// A Watcher is a process that runs Print.
type Watcher struct {
	cmd   *exec.Cmd
	stdin io.Closer
	mu    sync.Mutex
	seen  []Stall
	done  chan struct{}
}

// Watch starts this program once more, with arguments that make it call Print.
func Watch(args ...string) (*Watcher, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	w := &Watcher{cmd: exec.Command(self, args...), done: make(chan struct{})}
	if w.stdin, err = w.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := w.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	go func() {
		defer close(w.done)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			var from, to int64
			_, _ = fmt.Sscan(lines.Text(), &from, &to)
			w.mu.Lock()
			w.seen = append(w.seen, Stall{time.UnixMicro(from), time.UnixMicro(to)})
			w.mu.Unlock()
		}
	}()
	return w, w.cmd.Start()
}

// Stop ends the process and returns the stalls.
func (w *Watcher) Stop() []Stall {
	_ = w.stdin.Close()
	<-w.done
	_ = w.cmd.Wait()
	return w.seen
}

// Describe describes stalls in a line.
func Describe(all []Stall) string {
	var longest, sum time.Duration
	over := [3]int{}
	for _, s := range all {
		d := s.To.Sub(s.From)
		longest, sum = max(longest, d), sum+d
		for i, limit := range []time.Duration{time.Millisecond, 2 * time.Millisecond, 5 * time.Millisecond} {
			if d > limit {
				over[i]++
			}
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "bare sleeping threads were run late %d times, by 1 ms or more %d, 2 ms %d, 5 ms %d, most %.1f ms, %.0f ms in all",
		len(all), over[0], over[1], over[2], ms(longest), ms(sum))
	return b.String()
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// Overlap reports whether a core stalled between two times, or just before: what should have run
// then may be on either.
func Overlap(all []Stall, from, to time.Time) bool {
	for _, s := range all {
		if s.From.Before(to) && s.To.After(from.Add(-time.Millisecond)) {
			return true
		}
	}
	return false
}
