package main

import (
	"fmt"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/loopwheel/loopwheel/loop"
)

// slowTurn is from when on a turn is slow.
const slowTurn = 2 * time.Millisecond

// A turnClock measures the turns of a loop in which sessions end by its thread's CPU clock: what
// the turn did, and not for how long the thread had no processor. It is the loop's.
type turnClock struct {
	inTurn         bool
	thread, before int           // the thread, in this turn and in the one before
	begun, ended   time.Duration // by the thread's clock
	n, slow        int           // turns, and those that took slowTurn or more
	moved          int           // turns on another thread than the one before
	longest        time.Duration
	between        time.Duration // the longest from the end of a turn to that of the next
}

// begin is called in each callback that may be the first of a turn.
func (t *turnClock) begin(l *loop.Loop) {
	if t.inTurn {
		return
	}
	t.inTurn = true
	t.thread, t.begun = unix.Gettid(), threadTime()
	l.AtTurnEnd(t.end)
}

func (t *turnClock) end() {
	t.inTurn = false
	if t.thread != unix.Gettid() { // a callback has blocked
		t.moved++
		return
	}
	now := threadTime()
	took := now - t.begun
	t.n++
	t.longest = max(t.longest, took)
	if took >= slowTurn {
		t.slow++
	}
	if t.thread == t.before {
		t.between = max(t.between, now-t.ended)
	} else if t.before != 0 {
		t.moved++
	}
	t.before, t.ended = t.thread, now
}

// threadTime is the CPU clock of the calling thread.
func threadTime() time.Duration {
	var ts unix.Timespec
	check(unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts))
	return time.Duration(ts.Nano())
}

// worker is a control for both clocks: a bare thread that does the same work, about a millisecond
// of it, every twenty. end stops it, and tells how long that took by either clock.
func worker() (end func() string) {
	stop, told := make(chan struct{}), make(chan string)
	go func() {
		runtime.LockOSThread()
		wall, cpu := figures{}, figures{}
		work := newWork()
		for tick := time.NewTicker(20 * time.Millisecond); ; {
			select {
			case <-stop:
				told <- fmt.Sprintf("%d of %d took 2 ms or more by the clock, %d by its CPU clock; in µs %v by the clock, %v by its CPU clock",
					wall.slow(), len(wall), cpu.slow(), wall, cpu)
				return
			case <-tick.C:
			}
			begun, used := time.Now(), threadTime()
			work.do()
			wall, cpu = append(wall, float64(time.Since(begun).Nanoseconds())/1e3), append(cpu, float64((threadTime()-used).Nanoseconds())/1e3)
		}
	}()
	return func() string {
		close(stop)
		return <-told
	}
}

// slow returns how many, in microseconds, are slowTurn or more.
func (f figures) slow() (n int) {
	for _, v := range f {
		if v >= float64(slowTurn.Microseconds()) {
			n++
		}
	}
	return n
}

// work is some of it: numbers are added up.
type work struct {
	numbers []int
	rounds  int
	sum     int
}

// newWork returns as much as takes about a millisecond.
func newWork() *work {
	w := &work{numbers: make([]int, 1<<12), rounds: 1}
	for {
		begun := threadTime()
		if w.do(); threadTime()-begun >= time.Millisecond {
			return w
		}
		w.rounds += max(1, w.rounds/4)
	}
}

func (w *work) do() {
	for range w.rounds {
		for _, n := range w.numbers {
			w.sum += n
		}
	}
}
