// Package procs keeps a P free for goroutines beside event loops.
//
// A loop that is busy keeps its P (see GOMAXPROCS) for 10 ms at a time, and so does one that sleeps
// in epoll_wait, as loops do that have no poller of their own. With as many loops as Ps, goroutines
// that wait for sockets (a database client, say) stand still that long. One P more than there are
// loops ends that.
//
// It stays when the loops have ended. Go 1.26 (runtime/proc.go, p.destroy) forgets the cleanups of
// runtime.AddCleanup that are queued on a P which goes away while it sweeps, those of files and
// sockets among them; and whoever starts servers one after the other would stop the world each time.
package procs

import (
	"os"
	"runtime"
	"sync"
)

var (
	mu     sync.Mutex
	loops  int // of all servers of the process
	before int // GOMAXPROCS before it was raised here
	raised int // what it was raised to last, 0 if it was not
)

// Available returns GOMAXPROCS as it is without what Reserve has added. Any goroutine may call it.
func Available() int {
	mu.Lock()
	defer mu.Unlock()
	if now := runtime.GOMAXPROCS(0); now != raised {
		return now
	}
	return before
}

// Reserve counts n loops that begin, and raises GOMAXPROCS to one more than all loops there are,
// if it is less. It returns the old and the new value, which are equal if nothing was raised. A
// process whose environment sets GOMAXPROCS has been told how many Ps it may have: nothing is
// raised then. Any goroutine may call it; each call needs one of Release.
func Reserve(n int) (old, now int) {
	mu.Lock()
	defer mu.Unlock()
	old = runtime.GOMAXPROCS(0)
	loops += n
	if os.Getenv("GOMAXPROCS") != "" || old > loops {
		return old, old
	}
	if old != raised {
		before = old // somebody else has set it
	}
	raised = loops + 1
	runtime.GOMAXPROCS(raised)
	return old, raised
}

// Release counts n loops that have ended. Any goroutine may call it.
func Release(n int) {
	mu.Lock()
	defer mu.Unlock()
	loops -= n
}
