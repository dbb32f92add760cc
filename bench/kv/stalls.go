package main

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

// A stall is a time in which a thread that only sleeps was not run though it should have been: what
// the machine itself costs, whatever the program.
type stall struct{ from, to time.Time }

// stallMin is from when on it is one, beyond what the thread wanted to sleep.
const stallMin = 500 * time.Microsecond

// watchStalls tells the stalls of each core on standard output, until standard input ends: one
// thread for each, bound to it, that sleeps for half a millisecond again and again.
func watchStalls() {
	out := make(chan stall, 1024)
	for core := range runtime.NumCPU() {
		go func() {
			runtime.LockOSThread()
			var set unix.CPUSet
			set.Set(core)
			_ = unix.SchedSetaffinity(0, &set)
			sleepStalled(out)
		}()
	}
	go func() {
		for s := range out {
			fmt.Println(s.from.UnixMicro(), s.to.UnixMicro())
		}
	}()
	_, _ = io.Copy(io.Discard, os.Stdin)
}

func sleepStalled(out chan<- stall) {
	const nap = 500 * time.Microsecond
	for {
		from := time.Now()
		ts := unix.NsecToTimespec(nap.Nanoseconds())
		_ = unix.Nanosleep(&ts, nil)
		if to := time.Now(); to.Sub(from) > nap+stallMin {
			out <- stall{from.Add(nap), to}
		}
	}
}

// A watcher is a process that runs watchStalls.
type watcher struct {
	cmd   *exec.Cmd
	stdin io.Closer
	mu    sync.Mutex
	seen  []stall
	done  chan struct{}
}

func startWatcher() (*watcher, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	w := &watcher{cmd: exec.Command(self, "-stalls"), done: make(chan struct{})}
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
			w.seen = append(w.seen, stall{time.UnixMicro(from), time.UnixMicro(to)})
			w.mu.Unlock()
		}
	}()
	return w, w.cmd.Start()
}

// stop returns the stalls.
func (w *watcher) stop() []stall {
	_ = w.stdin.Close()
	<-w.done
	_ = w.cmd.Wait()
	return w.seen
}

// tell describes stalls in a line.
func tell(stalls []stall) string {
	var longest, sum time.Duration
	over := [3]int{}
	for _, s := range stalls {
		d := s.to.Sub(s.from)
		longest, sum = max(longest, d), sum+d
		for i, limit := range []time.Duration{time.Millisecond, 2 * time.Millisecond, 5 * time.Millisecond} {
			if d > limit {
				over[i]++
			}
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "bare sleeping threads were run late %d times, by 1 ms or more %d, 2 ms %d, 5 ms %d, most %.1f ms, %.0f ms in all",
		len(stalls), over[0], over[1], over[2], ms(longest), ms(sum))
	return b.String()
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
