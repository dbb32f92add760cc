//go:build unix

package handover

import (
	"fmt"
	"math"
	"time"

	"github.com/loopwheel/loopwheel/internal/inside"
)

const (
	batchConns = 32 // on their way at a time: their pause is the time of a batch
	batchBytes = 256 << 10

	lookAgain = 20 * time.Millisecond // at connections that cannot move at the moment
)

// A sweep takes all connections off their loops that can move, in batches. One whole look at all
// follows the other, until none is left that may become free, or Patience is over.
type sweep struct {
	h     *Handover
	addrs []string // of the other Server
	most  int      // connections in a batch: batchConns, or fewer after one that was late
	stage stage
	place inside.Cursor
	began time.Time // it waits up to Config.Timeout from then on for connections that come back to their loops
	since time.Time // since then only those are left that cannot move at the moment
}

// A stage is how far a sweep has got.
type stage uint8

const (
	resting   stage = iota // no connection is held up
	oneOfEach              // it takes one of each kind, so that a mistake meets few
	all
	pausing // all, and the input of those is paused that have jobs
	ports   // sockets of UDP, each of which moves once, with the sessions that can move then
)

// begin has connections stay on their loops, where the looks meet them.
func (s *sweep) begin() {
	in.AllowHops(s.h.srv, false, s.h.cfg.Timeout/2)
	s.stage, s.began, s.since = oneOfEach, time.Now(), time.Time{} // some may have come by a handover that has just ended
	s.rewind()
}

// release lets all connections go on. The next look begins a new sweep.
func (s *sweep) release() {
	s.stage = resting
	in.PauseInput(s.h.srv, inside.PauseNone)
	in.AllowHops(s.h.srv, true, 0)
}

func (s *sweep) rewind() {
	s.place = inside.Cursor{Wait: s.h.cfg.Timeout / 2, Addrs: s.addrs, Starved: s.h.freeReserve, PauseBlocked: s.stage >= pausing, Stays: make(map[inside.Reason]int)}
}

// next returns the next batch. If it is empty, the next look is due after again, or this was the
// last one.
func (s *sweep) next() (batch []*inside.Moved, again time.Duration, done bool) {
	if s.stage == resting {
		s.begin()
	}
	if s.stage == oneOfEach {
		s.place.Kinds = make(map[inside.Kind]bool)
		batch = s.takeAll(s.most, batchBytes)
		s.stage = all
		s.rewind()
	}
	for len(batch) == 0 && s.place.Loop < len(s.h.srv.Loops()) {
		batch = s.take(s.most, batchBytes)
	}
	if len(batch) > 0 {
		return batch, 0, false
	}
	if s.stage == ports {
		return nil, 0, true
	}
	stays := s.place.Stays
	if stays[inside.ComingBack] > 0 && time.Since(s.began) < s.h.cfg.Timeout {
		s.rewind()
		return nil, lookAgain / 4, false
	}
	waits := 0
	for why, n := range stays {
		if why.MayPass() {
			waits += n
		}
	}
	if s.since.IsZero() {
		s.since = time.Now()
	}
	switch gone := time.Since(s.since); {
	case waits == 0 || gone >= s.h.cfg.Patience:
		s.stage = ports
		s.rewind()
		return s.next()
	case gone >= s.h.cfg.Patience/2 && s.stage == all:
		s.stage = pausing
		in.PauseInput(s.h.srv, inside.PauseJobs)
	}
	s.rewind()
	return nil, lookAgain, false
}

// take takes connections, or sockets of UDP, off one loop.
func (s *sweep) take(max, size int) []*inside.Moved {
	defer s.h.fillReserve()
	if s.stage == ports {
		return in.FreezePorts(s.h.srv, &s.place)
	}
	return in.Freeze(s.h.srv, &s.place, max, size)
}

// takeAll takes up to max off all loops. Those of one stage do not wait for several loops that are
// blocked.
func (s *sweep) takeAll(max, size int) (batch []*inside.Moved) {
	for s.place.Loop < len(s.h.srv.Loops()) && len(batch) < max {
		if s.stage == oneOfEach && len(batch) > 0 && time.Since(batch[0].Frozen) >= s.place.Wait {
			break
		}
		batch = append(batch, s.take(max-len(batch), size)...)
	}
	return batch
}

// everything takes at one instant all that can move. Output that waits, and what has no descriptor,
// has Patience. An error: some still have none, and to go on here is better than to cut them.
func (s *sweep) everything() (batch []*inside.Moved, err error) {
	s.stage = pausing
	for end := time.Now().Add(s.h.cfg.Patience); ; time.Sleep(lookAgain / 4) {
		s.rewind()
		batch = append(batch, s.takeAll(math.MaxInt, math.MaxInt)...)
		if err = blocked(s.place.Stays); err != nil {
			return batch, err
		}
		stuck := s.place.Stays[inside.NoSocket]
		if late := time.Now().After(end); late && stuck > 0 {
			return batch, fmt.Errorf("%d connections cannot move, as the old process has no descriptor left", stuck)
		} else if late || s.place.Stays[inside.OutputWaits]+stuck == 0 {
			break
		}
	}
	s.stage = ports
	s.rewind()
	batch = append(batch, s.takeAll(math.MaxInt, math.MaxInt)...)
	return batch, blocked(s.place.Stays)
}
