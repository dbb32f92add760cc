//go:build unix

package handover

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net"
	"sync/atomic"
	"time"

	"github.com/loopwheel/loopwheel/internal/inside"
)

// A taking is the new process's side: it does what its taker decides.
type taking struct {
	taker
	h       *Handover
	line    *line
	pipe    baton
	givenUp bool                    // by the old process, before this one was ready
	bound   []inside.Bound          // the Server's addresses
	named   map[string]net.Listener // others
	report  Report

	arriving    []*inside.Moved // of the batch that comes
	batch       []*inside.Moved // in hand
	refused     []int
	why         string // the old process refuses
	told        bool   // by over
	refusedLast int    // connections refused in the last batch; 0 once a later message shows that the old process knows
	state       bytes.Buffer
	failure     string // of Restore
	longest     atomic.Int64
}

// take takes over. The Server has started, and accepts nothing yet.
func (t *taking) take(ctx context.Context) (Report, error) {
	defer t.pipe.close()
	defer t.line.hang()
	t.closeItems()
	t.started(t)
	ends := ctx.Done()
	var hurry <-chan time.Time
	for t.phase != done && t.phase != failed {
		switch {
		case t.phase == deciding:
			t.decide(t)
			continue
		case t.phase == telling:
			t.tell(t)
			continue
		case ends == nil && (t.phase == prepared || t.phase == charge):
			t.end(t)
			continue
		case ends == nil && hurry == nil:
			hurry = time.After(t.h.cfg.Timeout)
		}
		select {
		case m, ok := <-t.line.in:
			switch {
			case ok:
				t.got(m)
			case t.line.tooLong && t.phase == prepared: // the old one is alive
				t.phase, t.why = failed, errTooLong.Error()
			default:
				t.lineEnded(t)
			}
		case <-ends:
			ends = nil
		case <-hurry:
			t.phase = failed
		}
	}
	if t.phase == failed {
		t.dropArriving()
		pid := t.report.Predecessor
		if ctx.Err() != nil && t.why == "" {
			return t.result(), fmt.Errorf("handover: ended while process %d handed over: %w", pid, context.Cause(ctx))
		}
		return t.result(), fmt.Errorf("handover: process %d goes on: %s", pid, cmp.Or(t.why, "its log says why"))
	}
	t.dropArriving()
	if !t.told {
		t.report.Died, t.report.Lost = true, t.refusedLast
		t.h.announce()
	}
	t.h.own(true)
	return t.result(), nil
}

func (t *taking) result() Report {
	t.report.Longest = time.Duration(t.longest.Load())
	return t.report
}

// got is what this process does with a message.
func (t *taking) got(m message) {
	if t.refusedLast = 0; m.kind != connection {
		m.close()
	}
	switch m.kind {
	case connection:
		t.arriving = append(t.arriving, t.moved(m))
	case stateData:
		if t.state.Write(m.body); m.n == 1 {
			t.restore()
		}
	case rehearse:
		t.rehearse()
	case batch:
		for _, c := range t.arriving {
			if c.Net == nil && c.Port == 0 && c.Err == nil { // of UDP the socket itself has moved
				c.Err = errors.New("handover: no descriptor was free for its socket")
			}
		}
		t.batch, t.arriving = t.arriving, nil
		t.acceptAll()
		t.gotBatch(t, m.n)
	default:
		if m.kind == refuse {
			t.why = string(m.body)
		}
		if m.kind == over && (t.phase == charge || t.phase == parting) {
			_ = json.Unmarshal(m.body, &t.report.Stayed)
			if !t.told {
				t.h.announce() // the old process ends after bye
			}
			t.told = true
		}
		if !t.hear(t, m.kind) {
			t.why = fmt.Sprintf("it has sent message %d, which does not belong here", m.kind)
			if t.line.hang(); t.phase == prepared {
				t.phase = failed // the old one is alive
			}
		}
	}
}

// moved returns the connection of a message.
func (t *taking) moved(m message) *inside.Moved {
	c, err := movedOf(m.body)
	if err != nil {
		c = &inside.Moved{Err: err}
	}
	if m.file != nil {
		nc, e := net.FileConn(m.file)
		if m.close(); e != nil {
			c.Err = errors.Join(c.Err, e)
		} else {
			c.Net = nc
		}
	}
	c.Drop = func(error) { c.Discard() }
	return c
}

// acceptAll has the Server accept what is in hand, and notes what it refuses. Before this process is
// in charge an Accept that does not return ends the handover; afterwards the old one goes on with
// what it has.
func (t *taking) acceptAll() {
	wait := 2 * t.h.cfg.Timeout // the old one does not wait so long, and goes on
	if t.phase != prepared {
		wait = math.MaxInt64
	}
	in.MoveIn(t.h.srv, t.batch, wait)
	t.refused = nil
	for i, m := range t.batch {
		if m.Err != nil {
			t.refused = append(t.refused, i)
			err := m.Err
			t.h.log(func() {
				t.h.srv.Logger.Warn().Err(err).Msg("handover: a connection was refused, and stays with the old process")
			})
		}
	}
}

// rehearse accepts copies of connections, and drops them.
func (t *taking) rehearse() {
	t.batch, t.arriving = t.arriving, nil
	failures := map[int]string{}
	if t.failure != "" {
		failures[-1] = t.failure
	} else {
		t.acceptAll()
	}
	for i, m := range t.batch {
		if m.Err != nil {
			failures[i] = m.Err.Error()
		}
		m.Drop(ErrNotTaken)
	}
	t.batch = nil
	body, _ := json.Marshal(failures)
	_ = t.line.write(message{kind: rehearsed, body: body}, nil, time.Now().Add(t.h.cfg.Timeout))
}

// restore gives the program its State.
func (t *taking) restore() {
	err := errors.New("this process has no State")
	if t.h.cfg.State != nil {
		err = t.h.cfg.State.Restore(&t.state)
	}
	if err != nil {
		t.failure = err.Error()
	}
	t.state = bytes.Buffer{}
}

func (t *taking) dropArriving() {
	for _, m := range append(t.arriving, t.batch...) {
		m.Drop(ErrNotTaken)
	}
	t.arriving, t.batch = nil, nil
}

// These carry out what a taker decides.

func (t *taking) takeBaton(n int) bool { return t.pipe.take(n) }

func (t *taking) send(k kind, n int) {
	m := message{kind: k, n: n}
	if k == answered {
		m.body, _ = json.Marshal(t.refused)
	}
	if t.line.write(m, nil, time.Time{}) != nil && k == ready {
		t.line.hang()
	}
}

func (t *taking) newcomers(on bool) { t.h.acceptNewcomers(on) }

func (t *taking) serve() {
	for i, m := range t.batch {
		if m.Err != nil {
			m.Drop(ErrNotTaken)
			continue
		}
		t.batch[i].Served = func() {
			pause := int64(time.Since(m.Frozen))
			for before := t.longest.Load(); pause > before && !t.longest.CompareAndSwap(before, pause); before = t.longest.Load() {
			}
		}
		if m.Thaw(false); m.Remote != nil { // it is no socket of UDP
			t.report.Moved++
		}
	}
	t.batch, t.refusedLast = nil, len(t.refused)
}

func (t *taking) drop() {
	for _, m := range t.batch {
		m.Drop(ErrNotTaken)
	}
	t.batch = nil
}

// giveUp ends the attempt before it has begun.
func (t *taking) giveUp() {
	t.line.hang()
	t.pipe.close()
	t.closeItems()
}
