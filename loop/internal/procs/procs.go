// Package procs keeps a P free for goroutines beside event loops.
//
// A loop that is busy keeps its P (see GOMAXPROCS) for 10 ms at a time, and so does one that sleeps
// in epoll_wait, as loops do that have no poller of their own. With as many loops as Ps, goroutines
// that wait for sockets (a database client, say) stand still that long. One P more than there are
// loops ends that.
package procs

import (
	"os"
	"runtime"
	"sync"
)

var (
	mu     sync.Mutex
	loops  int // of all servers of the process
	before int // GOMAXPROCS before the first loop, 0 while there is none
	raised int // what it was set to here, 0 if it was not
)

// Available returns GOMAXPROCS as it is without what Reserve has added. Any goroutine may call it.
func Available() int {
	mu.Lock()
	defer mu.Unlock()
	if raised != 0 && runtime.GOMAXPROCS(0) == raised {
		return before
	}
	return runtime.GOMAXPROCS(0)
}

// Reserve counts n loops that begin, and raises GOMAXPROCS to one more than all loops there are,
// if it is less. It returns the old and the new value, which are equal if nothing was raised. A
// process whose environment sets GOMAXPROCS has been told how many Ps it may have: nothing is
// raised then. Any goroutine may call it; each call needs one of Release.
func Reserve(n int) (old, now int) {
	mu.Lock()
	defer mu.Unlock()
	old = runtime.GOMAXPROCS(0)
	if loops == 0 {
		before, raised = old, 0
	}
	loops += n
	if os.Getenv("GOMAXPROCS") != "" || old > loops {
		return old, old
	}
	raised = loops + 1
	runtime.GOMAXPROCS(raised)
	return old, raised
}

// Release counts n loops that have ended. After the last one GOMAXPROCS is what it was before,
// unless somebody else has changed it meanwhile.
func Release(n int) {
	mu.Lock()
	defer mu.Unlock()
	if loops -= n; loops > 0 || raised == 0 {
		return
	}
	if runtime.GOMAXPROCS(0) == raised {
		restore()
	}
	raised = 0
}

// restore lets the runtime follow the machine again, if that is what it did before.
func restore() {
	runtime.SetDefaultGOMAXPROCS()
	if runtime.GOMAXPROCS(0) != before {
		runtime.GOMAXPROCS(before)
	}
}
