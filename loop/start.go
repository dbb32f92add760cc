package loop

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/loopwheel/loopwheel/loop/internal/engine"
	"github.com/loopwheel/loopwheel/loop/internal/goroutine"
	"github.com/loopwheel/loopwheel/loop/internal/limits"
	"github.com/loopwheel/loopwheel/loop/internal/meter"
)

// maxDefaultConns bounds what MaxConns is by default. In many containers the limit of open files is
// none, or a thousand million, and without any other a flood of connections would take all memory.
const maxDefaultConns = 1_000_000

// ipv6Prefix is how many bits of an IPv6 address MaxConnsPerIP looks at: what a site has at least.
const ipv6Prefix = 64

// limitConns fills in what follows from the limits of the system.
func (s *Server) limitConns() {
	capacity := s.engine.Capacity(s.NumLoops)
	s.limitMemory(capacity)
	if s.Limits.MaxConns > capacity {
		conns := s.Limits.MaxConns
		s.journal.Add(func() {
			s.Logger.Warn().Int("MaxConns", conns).Int("possible", capacity).
				Msg("the limit of open files (ulimit -n) is too low for Server.Limits.MaxConns")
		})
	}
	s.maxInTransit = int64(max(1, min(s.Limits.MaxConns/16, maxEnrolling)/s.NumLoops))
	s.lingerers = make(chan struct{}, max(1, min(capacity/16, maxLingering)))
	s.limiter = limits.NewLimiter(s.Limits.MaxConnsPerIP, ipv6Prefix, s.Limits.AcceptRate)
}

// bringUp opens the listeners and starts the loops. With an error no loop is left.
func (s *Server) bringUp(ctx context.Context) error {
	if err := s.listen(ctx); err != nil {
		return err
	}
	err := s.startLoops()
	if err == nil {
		if err = s.servePackets(); err != nil {
			err = errors.Join(err, s.abandon())
		}
	}
	return err
}

func (s *Server) startLoops() error {
	s.makeWatchdog()
	errs := make(chan error, s.NumLoops)
	hosts := make([]engine.Host, s.NumLoops)
	for i := range hosts {
		l := newLoop(s, i)
		// Before anybody can post anything: what OnStart of one loop posts to another comes after
		// that one's.
		_, _, _ = l.mail.Put(task{f: func() { l.start(errs) }})
		s.loops = append(s.loops, l)
		hosts[i] = host{l}
	}
	loops, err := s.engine.Start(s.base, hosts)
	if err != nil {
		if isStarved(err) {
			err = fmt.Errorf("%w (a loop takes about 10 files: lower Server.NumLoops, which is %d, or raise the limit of open files, ulimit -n)",
				err, s.NumLoops)
		}
		return errors.Join(err, s.engine.Stop())
	}
	for i, l := range s.loops {
		l.engine = loops[i]
	}
	s.phase.Store(phaseLooping)
	go s.watchdog.Run()
	for _, l := range s.loops {
		l.wake()
	}
	for range s.loops {
		err = errors.Join(err, <-errs)
	}
	if err != nil {
		err = errors.Join(err, s.abandon())
	}
	return err
}

// makeWatchdog makes the watchdog, which looks at all loops.
func (s *Server) makeWatchdog() {
	clock := func() time.Duration { return time.Since(s.base) }
	s.watchdog = meter.NewWatchdog(s.Debug.BlockedAfter, clock, s.Logger)
}

// abandon ends loops of which one could not start: what was posted runs, and OnStop where OnStart
// has returned.
func (s *Server) abandon() error {
	defer s.watchdog.Stop()
	if _, stuck := s.drain(); stuck != nil {
		return stuck
	}
	return s.stopEngine()
}

// start is the first thing that runs on a loop. It tells whether OnStart has returned, in each
// case.
func (l *Loop) start(result chan<- error) {
	l.claim()
	err := errGoexited
	defer func() {
		if err != nil {
			err = fmt.Errorf("loop: Server.OnStart: %w", err)
		}
		result <- err
	}()
	err = l.guard(func() {
		if l.server.OnStart != nil {
			l.server.OnStart(l)
		}
		l.started = true
	})
}

// claim makes the calling goroutine that of the loop.
func (l *Loop) claim() {
	l.goroutine = goroutine.ID()
	loops.Store(l.goroutine, l)
	l.meter.OnGoroutine(l.goroutine)
	if goroutine.Race || l.server.Debug.Strict {
		l.owner.Claim()
	}
}
