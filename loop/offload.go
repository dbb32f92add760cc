package loop

import (
	"context"
	"errors"
	"runtime/debug"
	"sync"
	"time"
)

// offloadPerConn is how many jobs of one connection may wait, so that one that is flooded does not take the queue of all.
const offloadPerConn = 1024

// jobsTimeout is how long Wait gives jobs that are running still when all connections are closed, and which have been told
// so by their contexts, to return.
const jobsTimeout = 5 * time.Second

var errGoexit = errors.New("loop: a job that was offloaded called runtime.Goexit")

// Offload has job run on a goroutine of its own, and then what comes of it on c's loop, as a turn of c: for what blocks, like
// a database, a file, a password hash. It must be called on c's loop, or in Accept. To return more than a value, let T be
// a struct; or an error, and keep the rest in variables that both functions see: then runs after job.
//
// Jobs of one connection run one after another, in the order of the calls, and so do their thens. What may run beside
// something else belongs in one job, with goroutines of its own. The connections of a Server share Server.MaxOffload
// goroutines, and take turns.
//
// ctx is done when c closes: a job should return then, as nobody waits for it. (With Conn.OnEOF, a peer that
// only ended its output still gets the answers.) Then does not run after that, and jobs that
// have not begun never will. When the server drains, a connection with jobs stays open until the last then has returned,
// which may offload more; it is not read any more meanwhile. At Server.DrainTimeout it is cut.
//
// nil means queued. ErrClosed: c is closed. ErrOffloadFull: Server.MaxOffloadQueue jobs wait, or 1,024 of c; nothing was
// queued. ErrServerClosed: the server has ended. A panic in job or then closes c with a *PanicError. A nil func
// panics here.
func Offload[T any](c *Conn, job func(ctx context.Context) T, then func(c *Conn, v T)) error {
	c.loop.owner.Check("Offload")
	if job == nil || then == nil {
		panic("loop: Offload with a nil func")
	}
	return c.offload(func(ctx context.Context) func(*Conn) {
		v := job(ctx)
		return func(c *Conn) { then(c, v) }
	})
}

// A job is what a goroutine of the pool does for a connection: it returns what the loop does then.
type job struct {
	run  func(ctx context.Context) (then func(*Conn))
	next *job // of the same connection
}

// jobs are what one connection has offloaded. The pool's lock guards what is not said to be the loop's.
type jobs struct {
	c       *Conn
	ctx     context.Context
	cancel  context.CancelFunc
	pending int // thens that have not run, the loop's own

	first, last *job
	waiting     int
	busy        bool  // in the pool's queue, or with a goroutine
	next        *jobs // in that queue
}

func (c *Conn) offload(run func(context.Context) func(*Conn)) error {
	if c.state >= stateClosing {
		return ErrClosed
	}
	if c.jobs == nil {
		c.jobs = &jobs{c: c}
		c.jobs.ctx, c.jobs.cancel = context.WithCancel(context.Background())
	}
	if err := c.loop.server.workers.put(c.jobs, &job{run: run}); err != nil {
		return err
	}
	c.jobs.pending++
	return nil
}

// stopJobs is part of c's end.
func (c *Conn) stopJobs() {
	if c.jobs != nil {
		c.loop.server.workers.drop(c.jobs)
		c.jobs.cancel()
	}
}

// drain closes c, or has it closed when its jobs are done.
func (c *Conn) drain() {
	switch {
	case c.busy:
		c.leaving = true
	case c.hasJobs():
		c.finishing = true
		c.pauseRead()
	default:
		c.shut(ErrServerClosed)
	}
}

// jobDone runs on the loop after a job.
func (c *Conn) jobDone(then func(*Conn)) {
	c.jobs.pending--
	then(c)
	if c.finishing && !c.hasJobs() {
		c.shut(ErrServerClosed)
	}
}

// hasJobs reports whether there are jobs whose then has not run.
func (c *Conn) hasJobs() bool { return c.jobs != nil && c.jobs.pending > 0 }

// workers are the goroutines that work for all connections of a Server. Each lives as long as it finds something to do.
// A pool that keeps its goroutines would save half a microsecond for a job that blocks anyway, and would
// have something to tend: ants wakes up twice a second for that, while an idle server should not.
type workers struct {
	mu          sync.Mutex
	max         int
	maxWaiting  int
	first, last *jobs // connections with jobs that wait, and none that runs
	waiting     int   // jobs
	running     int   // goroutines
	closed      bool
	done        chan struct{} // closed when closed and nothing runs
}

// put queues a job, and starts a goroutine for it if there may be one more.
func (p *workers) put(js *jobs, j *job) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.closed:
		return ErrServerClosed
	case p.waiting >= p.maxWaiting || js.waiting >= offloadPerConn:
		return ErrOffloadFull
	}
	if js.last == nil {
		js.first = j
	} else {
		js.last.next = j
	}
	js.last = j
	js.waiting++
	p.waiting++
	if !js.busy {
		js.busy = true
		p.enqueue(js)
		if p.running < p.max {
			p.running++
			go p.run()
		}
	}
	return nil
}

// enqueue puts js at the end of the queue. p.mu is held.
func (p *workers) enqueue(js *jobs) {
	if p.last == nil {
		p.first = js
	} else {
		p.last.next = js
	}
	p.last = js
}

// drop forgets the jobs that have not begun.
func (p *workers) drop(js *jobs) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dropLocked(js)
}

func (p *workers) dropLocked(js *jobs) {
	p.waiting -= js.waiting
	js.first, js.last, js.waiting = nil, nil, 0
}

// run is one goroutine.
func (p *workers) run() {
	js, j := p.take(nil)
	// Only Goexit ends it early: another one goes on, after the connection at hand.
	defer func() {
		if j != nil {
			p.release(js)
			go p.run()
		}
	}()
	for j != nil {
		js.do(j)
		js, j = p.take(js)
	}
}

// take puts a connection with more jobs behind the others, and returns the next job, or nil: the goroutine must end then.
func (p *workers) take(done *jobs) (*jobs, *job) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.releaseLocked(done)
	for p.first != nil {
		js := p.first
		if p.first = js.next; p.first == nil {
			p.last = nil
		}
		js.next = nil
		if p.closed {
			p.dropLocked(js)
		}
		j := js.first
		if j == nil { // dropped
			js.busy = false
			continue
		}
		if js.first = j.next; js.first == nil {
			js.last = nil
		}
		js.waiting--
		p.waiting--
		return js, j
	}
	p.running--
	if p.closed && p.running == 0 {
		close(p.done)
	}
	return nil, nil
}

func (p *workers) release(js *jobs) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.releaseLocked(js)
}

func (p *workers) releaseLocked(js *jobs) {
	switch {
	case js == nil:
	case js.first == nil:
		js.busy = false
	default:
		p.enqueue(js)
	}
}

// do runs a job, unless its connection has closed meanwhile, and posts what follows.
func (js *jobs) do(j *job) {
	if js.ctx.Err() != nil {
		return
	}
	var then func(*Conn)
	defer func() {
		if then == nil {
			js.panicked(recover())
		}
	}()
	then = j.run(js.ctx)
	_ = js.c.loop.post(task{told: func(c *Conn) { c.jobDone(then) }, c: js.c}, true)
}

// panicked closes the connection because of a job's panic, and has it logged and counted even if it is closed already.
func (js *jobs) panicked(v any) {
	if v == nil {
		v = errGoexit
	}
	c, err := js.c, &PanicError{Value: v, Stack: debug.Stack()}
	c.loop.logPanic(err, c)
	_ = c.loop.urge(func() {
		c.loop.count.panics++
		c.loop.rare = true
		c.shut(err)
	})
}

// stop refuses new jobs, drops those that wait and gives those that run some time. It returns how many goroutines are left.
func (p *workers) stop(timeout time.Duration) int {
	p.mu.Lock()
	p.closed = true
	p.done = make(chan struct{})
	if p.running == 0 {
		close(p.done)
	}
	p.mu.Unlock()
	t := time.NewTimer(timeout)
	defer t.Stop()
	select {
	case <-p.done:
	case <-t.C:
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.running
}

// counts returns how many jobs wait, and how many run.
func (p *workers) counts() (waiting, running int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.waiting, p.running
}

// stopJobPool is the last step of the server's end.
func (s *Server) stopJobPool() {
	if n := s.workers.stop(jobsTimeout); n > 0 {
		s.Logger.Warn().Int("jobs", n).Msg("offloaded jobs do not return, though their connections are closed: their goroutines are left behind")
	}
}
