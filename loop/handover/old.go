//go:build unix

package handover

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/loopwheel/loopwheel/internal/inside"
)

const (
	samples    = 3 // of each kind, for the rehearsal
	stateChunk = 256 << 10

	complainIn = time.Minute // about a process that says nothing
)

// A giving is the old process's side of one handover: it does what its giver decides.
type giving struct {
	giver
	h      *Handover
	line   *line
	pipe   baton
	pid    int
	done   chan struct{}
	over   time.Time     // done was closed
	why    string        // it refuses
	frozen bool          // State.Freeze was called
	state  chan struct{} // closed when the last call of a State's method has returned; nil: there was none
	given  bool          // it has the right to accept, and perhaps connections
	hangs  bool          // it has not said ready in time
	told   bool          // by over: it has announced itself, or will

	sweep  sweep
	batch  []*inside.Moved
	unsent []message // the rest of a late batch
	since  time.Time // the batch was frozen
	moved  int
}

// beginGiving hands over to a process that has said hello; false: another handover is under way, or
// this process is to end.
func (h *Handover) beginGiving(l *line, pid int, addrs []string) bool {
	h.child.opens(pid)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.giving != nil || isClosed(h.quit) {
		return false
	}
	g := &giving{h: h, line: l, pid: pid, sweep: sweep{h: h, addrs: addrs, most: batchConns}, done: make(chan struct{})}
	h.giving = g
	go g.run()
	return true
}

// run goes on until the new process has taken over, or this one goes on.
func (g *giving) run() {
	defer func() {
		g.over = time.Now()
		close(g.done)
	}()
	g.h.log(func() { g.h.srv.Logger.Info().Int("pid", g.pid).Msg("handover: another process is taking over") })
	g.begin()
	err := g.welcome()
	go g.line.listen()
	if err != nil {
		g.note(err.Error())
		g.lineEnded(g)
	}
	for g.phase != idle && g.phase != retired {
		switch g.phase {
		case asked:
			g.awaitReady()
		case sending:
			g.writeBatch()
		case offered:
			g.hearOne(time.Until(g.since.Add(g.h.cfg.Timeout)), "it has not answered a batch within Timeout")
		case between:
			g.next()
		case silent, ending:
			if len(g.line.rest) > 0 {
				g.writeLate()
			} else if g.waitLong() {
				g.retire()
				return
			}
		}
	}
	if g.phase == retired {
		g.retire()
		g.h.log(func() {
			g.h.srv.Logger.Info().Int("pid", g.pid).Int("moved", g.moved).Msg("handover: the next process is in charge")
		})
		return
	}
	g.h.log(func() {
		g.h.srv.Logger.Error().Int("pid", g.pid).Str("why", g.why).Msg("handover: failed; this process continues")
	})
	g.h.child.fails(g.pid, g.given, g.hangs, g.h.cfg.StartTimeout)
	g.h.own(true)
	g.h.fillReserve()
	if g.told {
		g.h.announce()
	}
	if g.state == nil {
		g.forgotten()
	} else {
		go g.forgotten()
	}
}

// forgotten allows another handover when the State's methods have returned.
func (g *giving) forgotten() {
	if g.state != nil {
		<-g.state
	}
	g.h.mu.Lock()
	g.h.giving = nil
	g.h.mu.Unlock()
}

// retire has this process drain: the next one is in charge, or says nothing.
func (g *giving) retire() {
	g.h.child.retires() // first: it may take over as soon as the next one knows
	g.line.hang()
	g.pipe.close()
	close(g.h.retired)
}

// welcome sends the sockets.
func (g *giving) welcome() (err error) {
	g.h.freeReserve()
	g.pipe, err = newBaton()
	if g.h.fillReserve(); err != nil {
		return err
	}
	if err = g.pipe.put(0); err != nil { // if this process dies now, the new one is in charge
		return err
	}
	deadline := time.Now().Add(g.h.cfg.Timeout)
	names, from := g.h.items()
	for i, name := range names {
		if err = g.line.write(message{kind: item, n: os.Getpid(), body: []byte(name)}, from[i], deadline); err != nil {
			return err
		}
	}
	return g.line.write(message{kind: welcome}, g.pipe.r, deadline)
}

// await returns the next message; false: the line has ended, or it is too late.
func (g *giving) await(d time.Duration) (m message, ended, ok bool) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case m, ok = <-g.line.in:
		m.close()
		return m, !ok, ok
	case <-timer.C:
		return m, false, false
	}
}

// hearOne hears one message, or that there is none in time.
func (g *giving) hearOne(d time.Duration, late string) {
	switch m, ended, ok := g.await(d); {
	case ok:
		g.got(m)
	case ended:
		g.itHasEnded()
	default:
		g.note(late)
		g.late(g)
	}
}

// awaitReady hears one message, or that there is none within StartTimeout. If this process is to
// end it waits for Timeout at most: nothing has moved, and the drain must begin.
func (g *giving) awaitReady() {
	quit, why := g.h.quit, "it was not ready within StartTimeout"
	began, late := time.Now(), time.NewTimer(g.h.cfg.StartTimeout)
	defer late.Stop()
	for {
		select {
		case m, ok := <-g.line.in:
			if m.close(); ok {
				g.got(m)
			} else {
				g.itHasEnded()
			}
			return
		case <-quit:
			quit = nil
			if rest := time.Until(began.Add(g.h.cfg.StartTimeout)); rest > g.h.cfg.Timeout {
				late.Reset(g.h.cfg.Timeout)
				why = "it was not ready within Timeout of the end of this process"
			}
		case <-late.C:
			g.note(why)
			g.hangs = true
			g.late(g)
			return
		}
	}
}

// itHasEnded is for the end of the line.
func (g *giving) itHasEnded() {
	g.note("it has ended, or given up")
	g.lineEnded(g)
}

func (g *giving) note(why string) {
	if g.why == "" {
		g.why = why
	}
}

// got is what this process does with a message.
func (g *giving) got(m message) {
	if m.kind == leave {
		g.note("it was told to end")
	}
	if g.phase == offered && m.kind == answered && m.n == g.n {
		var refused []uint
		_ = json.Unmarshal(m.body, &refused)
		for _, i := range refused {
			if i < uint(len(g.batch)) && g.batch[i] != nil {
				g.batch[i].Thaw(true)
				g.batch[i] = nil
			}
		}
	}
	if g.phase == asked && m.kind == ready {
		g.prepare()
	} else if !g.hear(g, m.kind, m.n) {
		g.note(fmt.Sprintf("it has sent message %d, which does not belong here", m.kind))
		g.lineEnded(g)
	}
}

// waitLong waits for a process that may be stopped, and complains. It reports whether this process
// is to end, and has waited long enough.
func (g *giving) waitLong() (ends bool) {
	phase, patience, complain := g.phase, g.h.cfg.Timeout, time.NewTicker(complainIn)
	defer complain.Stop()
	late := time.NewTimer(patience)
	defer late.Stop()
	var quit chan struct{}
	for g.phase == phase {
		select {
		case m, ok := <-g.line.in:
			if m.close(); ok {
				g.got(m)
			} else {
				g.itHasEnded()
			}
		case <-late.C:
			quit = g.h.quit
			g.late(g)
		case <-quit:
			return true
		case <-complain.C:
			g.h.log(func() {
				g.h.srv.Logger.Error().Int("pid", g.pid).Msg("handover: the next process does not respond; it may be stopped, and holds its connections")
			})
		}
	}
	return false
}

// prepare brings this process to rest, as the new one is ready, and rehearses.
func (g *giving) prepare() {
	g.h.own(false)
	g.h.acceptNewcomers(false)
	g.sweep.begin()
	err := g.quiesce()
	if err == nil {
		err = g.rehearse()
	}
	if err == nil && g.h.cfg.State != nil {
		g.batch, err = g.sweep.everything()
	}
	if err != nil {
		g.why = err.Error()
		g.preparationFailed(g)
		return
	}
	g.since = time.Now() // everything may have taken Patience
	g.preparationDone(g)
}

// quiesce waits for HTTP requests in hand, and with a State for jobs and for connections that come
// back to their loops, at most Patience. An error: nothing can move with the State.
func (g *giving) quiesce() error {
	var stays map[inside.Reason]int
	for end := time.Now().Add(g.h.cfg.Patience); time.Now().Before(end); time.Sleep(lookAgain / 4) {
		rest := true
		for _, w := range g.h.webs {
			rest = rest && w.rest()
		}
		if g.h.cfg.State != nil { // what awaits something is read on until it is here
			in.PauseInput(g.h.srv, inside.PauseAll)
			stays = in.CountStaying(g.h.srv, g.sweep.addrs, g.h.cfg.Timeout/2)
			rest = rest && stays[inside.Jobs]+stays[inside.Busy]+stays[inside.ComingBack]+stays[inside.Blocked] == 0
		}
		if rest {
			break
		}
	}
	return blocked(stays)
}

// blocked returns an error if a loop has been passed over, without which no State can move.
func blocked(stays map[inside.Reason]int) error {
	if n := stays[inside.Blocked]; n > 0 {
		return fmt.Errorf("an event loop is blocked, as its log says: its %d connections cannot move with the State", n)
	}
	return nil
}

// rehearse gives the new process the State, and has it accept copies of connections.
func (g *giving) rehearse() error {
	deadline := time.Now().Add(g.h.cfg.Timeout)
	if err := g.sendState(deadline); err != nil {
		return err
	}
	var copies []*inside.Moved
	for _, m := range in.Copies(g.h.srv, g.sweep.addrs, samples, g.h.cfg.Timeout/2) {
		body := recordOf(m)
		if len(body) > maxMessage { // it stays: see records
			continue
		}
		copies = append(copies, m)
		if err := g.line.write(message{kind: connection, body: body}, nil, deadline); err != nil {
			return err
		}
	}
	if err := g.line.write(message{kind: rehearse}, nil, deadline); err != nil {
		return err
	}
	rest := time.Until(deadline)
	m, ended, ok := g.await(rest)
	switch {
	case ended:
		return errors.New("it has ended, or given up, in the rehearsal")
	case !ok:
		return fmt.Errorf("it has not rehearsed (State.Restore, Accept) in the %v that were left of Timeout", rest.Round(time.Millisecond))
	case m.kind != rehearsed:
		return fmt.Errorf("it has not rehearsed, but sent message %d", m.kind)
	}
	var failures map[int]string // -1: of the State
	if err := json.Unmarshal(m.body, &failures); err != nil {
		return err
	}
	if why, ok := failures[-1]; ok {
		return errors.New("State.Restore: " + why)
	}
	good := make(map[inside.Kind]bool)
	for i, m := range copies {
		good[m.Kind] = good[m.Kind] || failures[i] == ""
	}
	for i, m := range copies {
		if !good[m.Kind] {
			return fmt.Errorf("it takes none of the connections at %s with %v: %s", m.Addr, m.Kind.Handler, failures[i])
		}
	}
	return nil
}

// writeBatch puts the baton down, and writes the batch.
func (g *giving) writeBatch() {
	deadline := g.since.Add(g.h.cfg.Timeout)
	if g.n > 0 { // that of batch 0 is down since welcome
		if err := g.pipe.put(g.n); err != nil {
			g.note(err.Error())
			g.lineEnded(g)
			return
		}
	}
	records := g.records()
	for i, m := range records {
		var socket any
		if i < len(g.batch) {
			socket = g.batch[i].Socket
		}
		err := g.line.write(m, socket, deadline)
		if errors.Is(err, errLate) {
			g.unsent = records[i+1:] // which go without sockets: the baton will be gone
			g.note(err.Error())
			g.late(g)
			return
		}
		if err != nil {
			break // it has ended, which the line says, too
		}
	}
	g.written()
}

// records returns the messages of the batch. A connection that is too large for one is no part of
// it any more, and neither is the other end of its Pipe.
func (g *giving) records() (records []message) {
	for i := 0; i < len(g.batch); {
		party, fits := g.batch[i:i+1], true
		if i+1 < len(g.batch) && g.batch[i+1].Pipe == 2 {
			party = g.batch[i : i+2]
		}
		before := len(records)
		for _, m := range party {
			body := recordOf(m)
			fits = fits && len(body) <= maxMessage
			records = append(records, message{kind: connection, body: body})
		}
		if fits {
			i += len(party)
			continue
		}
		records = records[:before]
		for _, m := range party {
			m.Thaw(true)
		}
		g.batch = slices.Delete(g.batch, i, i+len(party))
	}
	return append(records, message{kind: batch, n: g.n})
}

// writeLate writes the rest of a batch that is this process's again, when the other one reads.
func (g *giving) writeLate() {
	for {
		deadline := time.Now().Add(g.h.cfg.Timeout)
		_ = g.line.SetWriteDeadline(deadline)
		err := late(g.line.flush(), g.h.cfg.Timeout)
		for err == nil && len(g.unsent) > 0 {
			err = g.line.write(g.unsent[0], nil, deadline)
			g.unsent = g.unsent[1:]
		}
		if !errors.Is(err, errLate) {
			g.unsent, g.line.rest = nil, nil // or the other one has ended, which the line says, too
			return
		}
		select {
		case <-g.h.quit:
			g.note("it does not read, and this process is to end")
			g.lineEnded(g)
			return
		default:
		}
	}
}

// next sends the next batch, or that there is none, or waits for a while.
func (g *giving) next() {
	done := g.h.cfg.State != nil // everything has moved with batch 0, or stays
	var again time.Duration
	if g.since = time.Now(); !done {
		g.batch, again, done = g.sweep.next()
	}
	switch {
	case len(g.batch) > 0:
		g.since = g.batch[0].Frozen
		g.offer()
	case done:
		g.nothingLeft(g)
		g.sweep.release() // what is left drains
	default:
		switch m, ended, ok := g.await(again); {
		case ok:
			g.got(m)
		case ended:
			g.itHasEnded()
		}
	}
}

// These carry out what a giver decides.

func (g *giving) takeBaton(n int) bool { return g.pipe.r != nil && g.pipe.take(n) }

func (g *giving) awaitAnswer(n int) {
	if m, _, ok := g.await(g.h.cfg.Timeout); ok && m.kind == answered && m.n == n {
		g.got(m)
	}
}

func (g *giving) send(k kind, n int) {
	m := message{kind: k, n: n}
	switch k {
	case refuse:
		m.body = []byte(g.why)
	case over:
		g.told = true
		stays := make(map[string]int)
		for why, n := range in.CountStaying(g.h.srv, g.sweep.addrs, g.h.cfg.Timeout/2) {
			stays[why.String()] = n
		}
		m.body, _ = json.Marshal(stays)
	}
	if g.line.write(m, nil, time.Now().Add(g.h.cfg.Timeout)) != nil {
		g.line.hang()
	}
}

func (g *giving) newcomers(on bool) {
	if g.h.acceptNewcomers(on); on { // it may take long until the next batch
		g.sweep.release()
	}
}

func (g *giving) keep() {
	if n := len(g.batch); n > 1 { // a successor that is slow may be in time with fewer
		g.sweep.most = max(1, min(g.sweep.most, n)/2)
	}
	for _, m := range g.batch {
		if m != nil {
			m.Thaw(false)
		}
	}
	g.batch = nil
}

func (g *giving) gone() {
	g.given = true
	for _, m := range g.batch {
		if m != nil {
			if m.Drop(ErrMoved); m.Remote != nil {
				g.moved++
			}
		}
	}
	g.batch = nil
}

func (g *giving) forget() {
	g.keep() // a batch whose baton could not be put down
	g.line.hang()
	if g.pipe.r != nil {
		g.pipe.close()
	}
	if g.frozen {
		g.thaw()
	}
}

// hang ends the handover at once.
func (g *giving) hang() { g.line.hang() }
