package loop

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/loopwheel/loopwheel/loop/internal/jobs"
	"github.com/loopwheel/loopwheel/loop/internal/meter"
)

// This file runs what would block a loop on goroutines, and what comes of it on the loop.

// jobsTimeout is how long Wait gives jobs that are running still when all connections are closed,
// and whose contexts are done, to return.
const jobsTimeout = 5 * time.Second

var errGoexit = errors.New("loop: a job that was offloaded called runtime.Goexit")

// Offload runs job on a separate goroutine, and then calls then with its result on c's loop. Use it
// for blocking work, such as a database query, file I/O, or a password hash. It must be called on
// c's loop, or in Accept. To return more than one value, let T be a struct.
//
// The jobs of one connection run one after another, in the order of the calls, and so do their then
// functions. Work that may run concurrently belongs in one job, with goroutines of its own. The
// connections of a Server share Server.Limits.MaxOffload goroutines, and take turns.
//
// ctx is done when c closes: a job should then return, because its result is not used. After that,
// then does not run, and jobs that have not begun never do. A peer that has ended its output still
// waits for results: c closes when the last then has returned, unless Conn.OnEOF changes that. A
// peer that has gone looks the same until something is sent to it. When the server drains, a
// connection with jobs stays open until the last then has returned, which may call Offload again.
// It is not read during that time. At Server.Drain.Timeout it is cut.
//
// A job that may never end needs its own time limit. While 16 jobs of c are running or queued,
// further messages wait. Datagrams of a UDP session do not wait, because they would be lost.
// Because input from before a peer's close is still delivered, c stays open for as long as that
// takes, regardless of the idle timeout.
//
// nil means that the job was queued. ErrClosed means that c is closed. ErrOffloadFull means that
// 16,384 jobs of the server are queued, or 1,024 of c, or as many of c as the server has places
// left. ErrServerClosed means that the server has ended. A panic in job or then closes c with a
// *PanicError. Offload panics if job or then is nil.
func Offload[T any](c *Conn, job func(ctx context.Context) T, then func(c *Conn, v T)) error {
	c.loop.owner.Check("Offload")
	needFunc("Offload", job != nil && then != nil)
	return c.offload(func(ctx context.Context) func() {
		v := job(ctx)
		return func() { then(c, v) }
	})
}

// offloaded is what one connection has given to Offload.
type offloaded struct {
	queue   *jobs.Queue
	pending int      // thens that have not run
	thens   []func() // of jobs that are done, while output is held back, or others have their turn
	goesOn  bool     // the rest of them is in the run queue
}

// maxWaitingJobs is how many jobs of a server may wait for a goroutine.
const maxWaitingJobs = 16_384

// jobsAhead is how many jobs of one connection may be under way while its input is decoded. They
// run one after another, so that more of them would only wait.
const jobsAhead = 16

// offload has run run beside the loop, and what that returns on it.
func (c *Conn) offload(run func(context.Context) (then func())) error {
	if c.isClosing() {
		return ErrClosed
	}
	x := c.more()
	if x.jobs == nil {
		x.jobs = &offloaded{queue: c.loop.server.jobs.NewQueue(c.jobPanicked)}
	}
	switch err := x.jobs.queue.Put(func(ctx context.Context) {
		then := run(ctx)
		_ = c.post(task{c: c, f: func() { c.jobDone(then) }}, false)
	}); {
	case errors.Is(err, jobs.ErrClosed):
		return ErrServerClosed
	case err != nil:
		return err
	}
	if x.jobs.pending++; x.jobs.pending >= jobsAhead && !c.isUDP() { // which would lose datagrams
		c.pause(heldByAnswers)
	}
	return nil
}

// awaitJob is codec.Peer.Await.
func (c *Conn) awaitJob(job func(context.Context), then func() error) error {
	err := c.offload(func(ctx context.Context) func() {
		job(ctx)
		return func() {
			err := then()
			c.sendReply(false)
			if err != nil {
				c.undecodable(err)
			}
			c.in.decoder.Restored()
			c.resume(heldByCodec)
		}
	})
	if err == nil {
		c.pause(heldByCodec)
	}
	return err
}

// jobDone runs on the loop after a job.
func (c *Conn) jobDone(then func()) {
	if c.isFrozen() {
		c.postpone(func() { c.jobDone(then) }, nil)
	} else if c.isOpen() {
		j := c.extras.jobs
		j.thens = append(j.thens, then)
		c.runThens()
	}
}

// runThens runs what is to follow jobs that are done, unless too much output waits.
func (c *Conn) runThens() {
	if c.extras == nil || c.extras.jobs == nil || c.extras.jobs.pending == 0 {
		return
	}
	l, j := c.loop, c.extras.jobs
	if j.goesOn {
		return
	}
	s := sliceOf(l.now, l.now+turnSlice)
	for len(j.thens) > 0 && c.isOpen() && c.in.pauses&(heldBack|hopping) == 0 {
		if s.ended {
			j.goesOn = true
			l.runSoon((*waitingThens)(c))
			return
		}
		then := j.thens[0]
		j.thens = slices.Delete(j.thens, 0, 1)
		j.pending--
		c.callHookAs(meter.Result, then)
		if c.pending() > l.holdBackAt && c.isOpen() {
			c.holdBack()
		}
		if len(j.thens) > 0 {
			s.over(l)
		}
	}
	if !c.isOpen() {
		return
	}
	switch drains := c.at() == stateDraining && !c.hasBusiness(); {
	case drains && !c.owesAnswer():
		c.beginClose(ErrServerClosed)
		return
	case !drains && j.pending <= jobsAhead/2:
		c.resume(heldByAnswers)
	}
	if j.pending == 0 {
		c.deliverEnd()
	}
}

// waitingThens makes a Conn a runnable that goes on with runThens.
type waitingThens Conn

func (w *waitingThens) Run() {
	if c := (*Conn)(w); c.isOpen() {
		c.extras.jobs.goesOn = false
		c.runThens()
	}
}

// hasJobs reports whether there are jobs whose then has not run, or a file that is being sent.
func (c *Conn) hasJobs() bool {
	return c.extras != nil && (c.extras.jobs != nil && c.extras.jobs.pending > 0 || c.extras.file != nil)
}

// jobPanicked closes the connection because of a job's panic, and has it logged and counted even if
// it is closed already. It runs on the job's goroutine.
func (c *Conn) jobPanicked(v any) {
	if v == nil {
		v = errGoexit
	}
	err := newPanicError(v)
	c.home().logPanic(err, c)
	_ = c.post(task{c: c, f: func() {
		c.loop.count.add(numPanics, 1)
		c.beginClose(err)
	}}, false)
}
