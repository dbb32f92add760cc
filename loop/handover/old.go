//go:build unix

package handover

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/loopwheel/loopwheel/internal/inside"
)

const (
	batchConns = 32 // on their way at a time: their pause is the time of a batch
	batchBytes = 256 << 10
	samples    = 3 // of each kind, for the rehearsal
	stateChunk = 256 << 10

	lookAgain  = 20 * time.Millisecond // at connections that cannot move at the moment
	complainIn = time.Minute           // about a process that says nothing

	outputWaits = "output waits" // a reason why a connection stays: see moveOut in package loop
)

// A giving is the old process's side of one handover: it does what its giver decides.
type giving struct {
	giver
	h      *Handover
	line   *line
	pipe   baton
	addrs  []string // of its Server
	pid    int
	done   chan struct{}
	queue  []message // that came while one was awaited
	why    string    // it refuses
	frozen bool      // State.Freeze was called

	batch     []*inside.Moved
	unsent    []message // the rest of a late batch
	since     time.Time // the batch was frozen
	kept      time.Time // connections began to come back to their loops
	moved     int
	newcomers bool           // there may be some, as it accepts again
	began     bool           // the move
	waited    time.Time      // since then only those are left that cannot move at the moment
	held      bool           // the input of connections with jobs
	left      map[string]int // what the last look found that stays, by reason
	ports     bool           // sockets of UDP come now
	cursor    inside.Walk
}

// beginGiving hands over to a process that has said hello; false: another handover is under way.
func (h *Handover) beginGiving(l *line, pid int, addrs []string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.giving != nil || !h.isReady {
		return false
	}
	g := &giving{h: h, line: l, pid: pid, addrs: addrs, done: make(chan struct{})}
	h.giving = g
	h.child.saidHello(pid)
	go g.run()
	return true
}

// run goes on until the new process has taken over, or this one goes on.
func (g *giving) run() {
	defer close(g.done)
	log := g.h.srv.Logger.With().Int("pid", g.pid).Logger()
	log.Info().Msg("handover: a process is to take over")
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
			g.prepare()
		case sending:
			g.writeBatch()
		case stuck:
			g.writeLate()
		case offered:
			g.listen(time.Until(g.since.Add(g.h.cfg.Timeout)))
		case between:
			g.next()
		case silent, ending:
			if g.waitLong() {
				g.leave()
				return
			}
		}
	}
	if g.phase == retired {
		log.Info().Int("moved", g.moved).Msg("handover: the next process is in charge")
		g.leave()
		return
	}
	log.Error().Str("why", g.why).Msg("handover: failed; this process continues")
	g.h.own(true)
	g.h.fillReserve()
	g.h.mu.Lock()
	g.h.giving = nil
	g.h.mu.Unlock()
}

// leave has this process drain: the next one is in charge, or says nothing.
func (g *giving) leave() {
	g.h.own(false)
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
		if err = g.line.write(message{kind: item, body: []byte(name)}, from[i], deadline); err != nil {
			return err
		}
	}
	return g.line.write(message{kind: welcome}, g.pipe.r, deadline)
}

// await returns the next message; false: the line has ended, or it is too late.
func (g *giving) await(d time.Duration) (m message, ended, ok bool) {
	if len(g.queue) > 0 {
		m, g.queue = g.queue[0], g.queue[1:]
		return m, false, true
	}
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

// listen hears one message, or that there is none in time.
func (g *giving) listen(d time.Duration) {
	switch m, ended, ok := g.await(d); {
	case ok:
		g.got(m)
	case ended:
		g.note("it has ended")
		g.lineEnded(g)
	default:
		g.note("it has not answered in time")
		g.late(g)
	}
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
	if g.phase == offered && m.kind == accepted && m.n == g.n {
		var refused []uint
		_ = json.Unmarshal(m.body, &refused)
		for _, i := range refused {
			if i < uint(len(g.batch)) && g.batch[i] != nil {
				g.batch[i].Thaw(true)
				g.batch[i] = nil
			}
		}
	}
	if !g.hear(g, m.kind, m.n) {
		g.note(fmt.Sprintf("it has sent message %d, which does not belong here", m.kind))
		g.lineEnded(g)
	}
	if g.phase == retired && g.newcomers {
		g.phase, g.newcomers = between, false
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
		if len(g.queue) > 0 {
			g.listen(0)
			continue
		}
		select {
		case m, ok := <-g.line.in:
			if m.close(); ok {
				g.got(m)
			} else {
				g.lineEnded(g)
			}
		case <-late.C:
			quit = g.h.quit
			g.late(g)
		case <-quit:
			return true
		case <-complain.C:
			g.h.srv.Logger.Error().Int("pid", g.pid).Msg("handover: the next process does not respond; it may be stopped, and holds its connections")
		}
	}
	return false
}

// prepare waits until the new process is ready, and brings this one to rest.
func (g *giving) prepare() {
	m, ended, ok := g.await(g.h.cfg.StartTimeout)
	switch {
	case ended:
		g.note("it has ended before it was ready")
		g.lineEnded(g)
		return
	case !ok:
		g.note("it was not ready within StartTimeout")
		g.late(g)
		return
	case m.kind != ready:
		g.got(m)
		return
	}
	g.h.own(false)
	g.h.setAccepting(false)
	g.quiesce()
	if err := g.rehearse(); err != nil {
		g.why = err.Error()
		g.hear(g, rehearsed, 0)
		return
	}
	if g.h.cfg.State != nil {
		for end := time.Now().Add(g.h.cfg.Patience); ; time.Sleep(lookAgain / 4) {
			g.left = make(map[string]int)
			g.batch = append(g.batch, g.walk(inside.Walk{Max: math.MaxInt, Bytes: math.MaxInt, Stays: g.left, Hold: true})...)
			if g.left[outputWaits] == 0 || time.Now().After(end) {
				break
			}
		}
		g.batch = append(g.batch, g.walk(inside.Walk{Ports: true, Max: math.MaxInt, Bytes: math.MaxInt})...)
	}
	g.since = time.Now()
	g.hear(g, ready, 0)
}

// quiesce waits for HTTP requests in hand, and with a State for jobs and for connections that come
// back to their loops, at most Patience.
func (g *giving) quiesce() {
	for end := time.Now().Add(g.h.cfg.Patience); time.Now().Before(end); time.Sleep(lookAgain / 4) {
		rest := true
		for _, w := range g.h.webs {
			rest = rest && w.rest()
		}
		if g.h.cfg.State != nil { // what awaits something is read on until it is here
			in.Hold(g.h.srv, inside.HoldAll)
			stays := g.stays(false)
			rest = rest && stays["jobs"]+stays["busy"]+stays["on its way back"] == 0
		}
		if rest {
			return
		}
	}
}

// stays returns how many connections cannot move at the moment, by reason. With save those count,
// too, whose Save fails.
func (g *giving) stays(save bool) map[string]int {
	w := inside.Walk{Copy: true, Stays: make(map[string]int), Max: math.MaxInt, Bytes: math.MaxInt}
	if !save {
		w.PerKind = -1
	}
	g.walk(w)
	return w.Stays
}

// walk takes connections from all loops, as w says.
func (g *giving) walk(w inside.Walk) (all []*inside.Moved) {
	w.Addrs, w.Starved = g.addrs, g.h.freeReserve
	defer g.h.fillReserve()
	for w.Loop = range g.h.srv.Loops() {
		for w.Next = math.MaxInt; w.Next > 0 && w.Max > 0 && w.Bytes > 0; {
			some := in.Freeze(g.h.srv, &w)
			w.Max -= len(some)
			all = append(all, some...)
		}
	}
	return all
}

// rehearse gives the new process the State, and has it accept copies of connections.
func (g *giving) rehearse() error {
	deadline := time.Now().Add(g.h.cfg.Timeout)
	if err := g.sendState(deadline); err != nil {
		return err
	}
	copies := g.walk(inside.Walk{Copy: true, PerKind: samples, Kinds: make(map[inside.Kind]int), Max: math.MaxInt, Bytes: math.MaxInt})
	for _, m := range copies {
		if err := g.line.write(message{kind: connection, body: recordOf(m)}, nil, deadline); err != nil {
			return err
		}
	}
	if err := g.line.write(message{kind: rehearse}, nil, deadline); err != nil {
		return err
	}
	m, ended, ok := g.await(time.Until(deadline))
	switch {
	case ended:
		return errors.New("it has ended in the rehearsal")
	case !ok:
		return errors.New("the rehearsal has not ended in time")
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

// sendState sends what Config.State saves.
func (g *giving) sendState(deadline time.Time) error {
	s := g.h.cfg.State
	if s == nil {
		return nil
	}
	g.frozen = true
	if err := s.Freeze(); err != nil {
		return fmt.Errorf("State.Freeze: %w", err)
	}
	w := &stateWriter{g: g, deadline: deadline}
	if err := s.Save(w); err != nil {
		return fmt.Errorf("State.Save: %w", err)
	}
	return w.flush(1)
}

// A stateWriter sends the State in chunks.
type stateWriter struct {
	g        *giving
	buf      bytes.Buffer
	sum      int64
	deadline time.Time
}

func (w *stateWriter) Write(p []byte) (int, error) {
	if w.sum += int64(len(p)); w.sum > w.g.h.cfg.MaxState {
		return 0, fmt.Errorf("handover: the State has more than MaxState, %d bytes", w.g.h.cfg.MaxState)
	}
	w.buf.Write(p)
	for w.buf.Len() >= stateChunk {
		if err := w.flush(0); err != nil {
			return 0, err
		}
	}
	return len(p), nil
}

// flush sends a chunk; last is 1 with the last one.
func (w *stateWriter) flush(last int) error {
	err := w.g.line.write(message{kind: stateData, n: last, body: w.buf.Bytes()}, nil, w.deadline)
	w.buf.Reset()
	return err
}

// writeBatch puts the baton down, and writes the batch.
func (g *giving) writeBatch() {
	deadline := g.since.Add(g.h.cfg.Timeout)
	if g.n > 0 { // that of batch 0 is down since welcome
		if err := g.pipe.put(g.n); err != nil {
			g.lineEnded(g)
			return
		}
	}
	var records []message
	g.batch = slices.DeleteFunc(g.batch, func(m *inside.Moved) bool {
		body := recordOf(m)
		if len(body) > maxMessage {
			m.Thaw(true)
			return true
		}
		records = append(records, message{kind: connection, body: body})
		return false
	})
	records = append(records, message{kind: batch, n: g.n})
	for i, m := range records {
		var socket any
		if i < len(g.batch) {
			socket = g.batch[i].Socket
		}
		err := g.line.write(m, socket, deadline)
		if errors.Is(err, errLate) {
			g.unsent = records[i+1:] // which go without sockets: the baton will be gone
			g.note("it does not read")
			g.late(g)
			return
		}
		if err != nil {
			break // it has ended, which the line says, too
		}
	}
	g.written()
}

// writeLate writes the rest of a batch that is this process's again, when the other one reads.
func (g *giving) writeLate() {
	for {
		deadline := time.Now().Add(g.h.cfg.Timeout)
		_ = g.line.SetWriteDeadline(deadline)
		err := g.line.flush()
		for err == nil && len(g.unsent) > 0 {
			err = g.line.write(g.unsent[0], nil, deadline)
			g.unsent = g.unsent[1:]
		}
		if !errors.Is(err, errLate) {
			g.unsent = nil
			g.written() // or the other one has ended, which the line says, too
			return
		}
		select {
		case <-g.h.quit:
			g.lineEnded(g)
			return
		default:
		}
	}
}

// next sends the next batch, or that there is none.
func (g *giving) next() {
	if g.h.cfg.State != nil { // everything has moved with batch 0, or stays
		g.end()
		return
	}
	if !g.began { // first one of each kind
		g.began, g.since = true, time.Now()
		g.kept = g.since // some may have come by a handover that has just ended
		g.batch = g.walk(inside.Walk{PerKind: 1, Kinds: make(map[inside.Kind]int), Max: batchConns, Bytes: batchBytes})
		g.again()
		if len(g.batch) > 0 {
			g.offer()
			return
		}
	}
	for c := &g.cursor; ; g.again() {
		for ; c.Loop < len(g.h.srv.Loops()); c.Loop, c.Next = c.Loop+1, math.MaxInt {
			for c.Next > 0 {
				g.since = time.Now()
				c.Max, c.Bytes = batchConns, batchBytes
				g.batch = in.Freeze(g.h.srv, c)
				if g.h.fillReserve(); len(g.batch) > 0 {
					g.offer()
					return
				}
			}
		}
		waits := c.Stays["on its way back"]
		if waits > 0 && time.Since(g.kept) < g.h.cfg.Timeout {
			time.Sleep(lookAgain / 4)
			continue
		}
		// the reasons of moveOut in package loop that may pass
		for _, reason := range []string{"jobs", "busy", outputWaits, "Save failed", "not ready", "handshake"} {
			waits += c.Stays[reason]
		}
		if g.waited.IsZero() {
			g.waited = time.Now()
		}
		gone := time.Since(g.waited)
		if ends := waits == 0 || gone >= g.h.cfg.Patience; ends && !g.ports {
			g.left = c.Stays
			g.ports = true // last, as it moves once, with what can move then
			continue
		} else if ends {
			g.end()
			return
		}
		if !g.held && gone >= g.h.cfg.Patience/2 {
			g.held = true
			in.Hold(g.h.srv, inside.HoldJobs)
		}
		select {
		case m, ok := <-g.line.in:
			if g.again(); ok {
				g.got(m)
			} else {
				g.lineEnded(g)
			}
			return
		case <-time.After(lookAgain):
		}
	}
}

// again has the next look at connections begin with the first.
func (g *giving) again() {
	g.cursor = inside.Walk{Ports: g.ports, Addrs: g.addrs, Next: math.MaxInt, Stays: make(map[string]int), Starved: g.h.freeReserve,
		Hold: g.held}
}

// end is that of the move: what is left stays, and drains.
func (g *giving) end() {
	g.nothingLeft(g)
	in.Hold(g.h.srv, inside.HoldNone)
}

// The rest is what a giver decides.

func (g *giving) takeBaton(n int) bool { return g.pipe.r != nil && g.pipe.take(n) }

func (g *giving) awaitAccepted(n int) {
	end := time.After(g.h.cfg.Timeout)
	for {
		select {
		case m, ok := <-g.line.in:
			if m.close(); !ok {
				return
			}
			if m.kind == accepted && m.n == n {
				g.got(m)
				return
			}
			g.queue = append(g.queue, m)
		case <-end:
			return
		}
	}
}

func (g *giving) send(k kind, n int) {
	m := message{kind: k, n: n}
	switch k {
	case refuse:
		m.body = []byte(g.why)
	case over:
		stays := g.stays(true)
		if n := g.left[outputWaits]; n > 0 { // only who tries to take a socket sees that
			stays[outputWaits] = n
		}
		m.body, _ = json.Marshal(stays)
	}
	if g.line.write(m, nil, time.Now().Add(g.h.cfg.Timeout)) != nil {
		g.line.hang()
	}
}

func (g *giving) accept(on bool) {
	g.newcomers = g.newcomers || on
	g.ports = false
	g.h.setAccepting(on)
	g.again() // there may be others by now, and some that came back
}

func (g *giving) keep() {
	g.kept, g.ports = time.Now(), false
	for _, m := range g.batch {
		if m != nil {
			m.Thaw(false)
		}
	}
	g.batch = nil
}

func (g *giving) gone() {
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
		g.h.cfg.State.Thaw()
	}
	in.Hold(g.h.srv, inside.HoldNone)
}

// hang ends the handover at once.
func (g *giving) hang() { g.line.hang() }
