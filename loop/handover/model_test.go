package handover

import (
	"flag"
	"fmt"
	"hash/maphash"
	"math/bits"
	"os"
	"strings"
	"testing"
)

// This file explores every order of steps and faults of the protocol: the code of protocol.go, with
// three processes, three connections, lines that are queues, and the baton. At any point a process
// may be killed, get SIGTERM, fail to start, or run into a timeout. A process that takes no step
// while others do is a stopped one. The calls of lose mark what a crash may cost.

var modelBudget = flag.String("model", "", "crashes,terms,starts,timeouts of TestModel, in place of its own")

const (
	modelProcs = 3 // 0 serves; 1 and 2 may be started
	modelConns = 3 // 0 and 1 are open; 2 is a newcomer
)

type life uint8

const (
	absent life = iota
	alive
	crashed // kill -9
	unfit   // it could not start, or was refused: it never had anything
	termed  // SIGTERM, after its drain
	gone    // it has handed over
)

type (
	connSet  uint8
	modelMsg struct {
		Kind   kind
		N      int
		Set    connSet
		Epochs [modelConns]uint8
	}
	modelProc struct {
		Life    life
		Term    bool // SIGTERM has come
		Accepts bool // newcomers and hellos
		Socket  bool // it has the meeting socket

		Old   giver
		To    uint8 // the new one
		Batch connSet
		Stays connSet
		Rest  modelMsg // to be written
		Moved int
		Back  int  // the baton that was taken back last, plus 1
		Gave  bool // To got something
		Kills bool // To has failed and got nothing: this process may kill it

		New     taker
		Hand    modelMsg
		Refused connSet
		Taken   int
		Bye     bool
	}
	modelConn struct {
		Open, Drained, Lost bool
		Touch               connSet // of processes that may read and write it: never two
		Epoch               uint8   // grows when a process begins to serve it
	}
	modelLine struct {
		Old            uint8
		OldEnd, NewEnd bool // is open
		ToOld, ToNew   [4]modelMsg
		Baton          int  // n+1: that of batch n is in the pipe
		Full           bool // for what the old one sends next
	}
	model struct {
		Procs [modelProcs]modelProc
		Conns [modelConns]modelConn
		Lines [modelProcs]modelLine // by the new one's number
		Left  budget
		Bad   string // the promise that is broken
		rules rules
	}
	budget struct{ Crashes, Terms, Starts, Timeouts int }
	rules  struct {
		Together bool   // a server with a State
		Hole     string // a rule of the protocol that is broken
	}
	modelStep struct {
		name  string
		fault bool
		to    model
	}
)

func (m modelMsg) String() string {
	return fmt.Sprintf("message %d of batch %d {%03b}", m.Kind, m.N, m.Set)
}

func (s *model) fail(format string, a ...any) {
	if s.Bad == "" {
		s.Bad = fmt.Sprintf(format, a...)
	}
}

func (s *model) write(q *[4]modelMsg, open bool, m modelMsg) {
	for i := range q {
		if q[i].Kind == noMessage {
			if open {
				q[i] = m
			}
			return
		}
	}
	s.fail("a queue of the model is too short")
}

func (s *model) toNew(j uint8, m modelMsg) { s.write(&s.Lines[j].ToNew, s.Lines[j].NewEnd, m) }
func (s *model) toOld(j uint8, m modelMsg) { s.write(&s.Lines[j].ToOld, s.Lines[j].OldEnd, m) }

func readMsg(q *[4]modelMsg) (m modelMsg) {
	m = q[0]
	copy(q[:], q[1:])
	q[len(q)-1] = modelMsg{}
	return m
}

func (c connSet) len() int { return bits.OnesCount8(uint8(c)) }

func (c connSet) each(f func(c int)) {
	for ; c != 0; c &= c - 1 {
		f(bits.TrailingZeros8(uint8(c)))
	}
}

func (s *model) owned(i int) (all connSet) {
	for c, x := range s.Conns {
		if x.Open && x.Touch>>i&1 == 1 {
			all |= 1 << c
		}
	}
	return all
}

func (s *model) serve(i int, these connSet) {
	these.each(func(c int) {
		x := &s.Conns[c]
		x.Touch |= 1 << i
		if x.Epoch++; x.Touch.len() > 1 {
			s.fail("two processes touch connection %d", c)
		}
	})
}

func (s *model) lose(these connSet) {
	these.each(func(c int) { s.Conns[c] = modelConn{Lost: true} })
}

// end: process i is no more, and what it has ends with it, by a drain unless it was killed.
func (s *model) end(i int, how life) {
	p := &s.Procs[i]
	s.owned(i).each(func(c int) { s.Conns[c] = modelConn{Lost: how == crashed, Drained: how != crashed} })
	l := &s.Lines[p.To] // as the old one
	if p.Old.phase == offered && l.ToOld[0].Kind == answered && l.ToOld[0].N == p.Old.n {
		s.lose(l.ToOld[0].Set) // the new one has refused them
	}
	if p.Old.phase == sending || p.Old.phase == offered && !l.NewEnd && l.Baton == p.Old.n+1 {
		s.lose(p.Batch) // it is not written, or the new one has ended without it
	}
	if p.Old.phase == offered && p.Old.n > 0 && s.rules.Hole == "late" {
		l.Baton = 0 // it was killed between the batch and the baton
	}
	line := &s.Lines[i] // as the new one
	for _, m := range append(line.ToNew[:], p.Hand) {
		if m.Kind == batch && m.N+1 == line.Baton && !line.OldEnd && how == crashed {
			s.lose(m.Set) // the old one was killed before, and this one has not taken it
		}
	}
	line.NewEnd, line.ToNew = false, [4]modelMsg{}
	for j := range s.Lines {
		if l := &s.Lines[j]; l.Old == uint8(i) && l.OldEnd {
			l.OldEnd, l.ToOld = false, [4]modelMsg{}
		}
	}
	*p = modelProc{Life: how, To: p.To, Moved: p.Moved, Taken: p.Taken, Bye: p.Bye}
}

// kill is that of a successor which has got nothing, by the old process i: RestartOn's.
func (s *model) kill(i int) {
	p := &s.Procs[i]
	if s.Procs[p.To].Accepts || s.owned(int(p.To)) != 0 {
		s.fail("%d kills %d, which serves", i, p.To)
	}
	p.Kills = false
	s.end(int(p.To), unfit)
}

// giverIn is a process as what a giver acts on.
type giverIn struct {
	s *model
	i int
}

func (w giverIn) proc() *modelProc { return &w.s.Procs[w.i] }
func (w giverIn) line() *modelLine { return &w.s.Lines[w.proc().To] }

func (w giverIn) takeBaton(n int) bool {
	w.proc().Back = 0
	if w.line().Baton != n+1 {
		return w.s.rules.Hole == "nobaton"
	}
	w.line().Baton, w.proc().Back = 0, n+1
	return true
}

func (w giverIn) awaitAnswer(n int) {
	if q := &w.line().ToOld; q[0].Kind == answered && q[0].N == n && w.s.rules.Hole != "unread" {
		w.s.old(w.i, readMsg(q))
	}
}

func (w giverIn) send(k kind, n int) {
	j, l := w.proc().To, w.line()
	if !l.Full {
		w.s.toNew(j, modelMsg{Kind: k, N: n})
		return
	}
	l.Full, l.OldEnd, l.ToOld = false, false, [4]modelMsg{} // it hangs up
	if w.s.Procs[j].New.phase == prepared {                 // the new one finds that at once
		w.s.newStep(int(j), func(n *taker, do takerIn) { n.lineEnded(do) })
	}
}

func (w giverIn) newcomers(on bool) { w.proc().Accepts = on }

func (w giverIn) keep() {
	p := w.proc()
	w.s.serve(w.i, p.Batch)
	if p.Old.phase == sending {
		p.Rest = modelMsg{Kind: batch, N: p.Old.n, Set: p.Batch, Epochs: w.s.epochs()} // stale by now
	}
	p.Batch = 0
}

func (w giverIn) gone() {
	p := w.proc()
	p.Moved += p.Batch.len()
	p.Batch, p.Gave = 0, true
}

func (w giverIn) forget() {
	l, p := w.line(), w.proc()
	if l.OldEnd, l.ToOld = false, [4]modelMsg{}; w.s.rules.Hole == "keep" {
		l.Baton = p.Back
	}
	p.Kills = !p.Gave || w.s.rules.Hole == "kill"
	p.Batch, p.Stays, p.Rest, p.Moved, p.Back, p.Gave = 0, 0, modelMsg{}, 0, 0, false
}

func (s *model) epochs() (all [modelConns]uint8) {
	for c, x := range s.Conns {
		all[c] = x.Epoch
	}
	return all
}

// put takes connections off their loop, and puts the baton of their batch down.
func (s *model) put(i int, these connSet) {
	p := &s.Procs[i]
	p.Batch = these
	these.each(func(c int) { s.Conns[c].Touch &^= 1 << i })
	s.Lines[p.To].Baton = p.Old.n + 1 // that of batch 0 is down since the beginning
}

// old is what the old one does with a message.
func (s *model) old(i int, m modelMsg) {
	p, w := &s.Procs[i], giverIn{s, i}
	if p.Old.phase == offered && m.Kind == answered && m.N == p.Old.n {
		s.serve(i, m.Set) // which are refused
		p.Batch, p.Stays = p.Batch&^m.Set, p.Stays|m.Set
	}
	if p.Old.phase == asked && m.Kind == ready {
		p.Old.preparationDone(w)
		these := connSet(0)
		if s.rules.Together {
			these = s.owned(i)
		}
		s.put(i, these)
		return
	}
	if s.rules.Hole == "again" {
		p.Old.again = false
	}
	if !p.Old.hear(w, m.Kind, m.N) {
		s.fail("the old process %d cannot take %v in phase %d", i, m, p.Old.phase)
	}
	if p.Old.phase == retired {
		if left := s.owned(i) &^ p.Stays; left != 0 {
			s.fail("the old process %d retires with {%03b}, which could move", i, left)
		}
		s.end(i, gone)
	}
}

// takerIn is a process as what a taker acts on.
type takerIn struct {
	s *model
	j int
}

func (w takerIn) proc() *modelProc { return &w.s.Procs[w.j] }

func (w takerIn) takeBaton(n int) bool {
	l := &w.s.Lines[w.j]
	if l.Baton != n+1 {
		return w.s.rules.Hole == "nobaton" && w.proc().New.phase == deciding
	}
	l.Baton = 0
	return true
}

func (w takerIn) send(k kind, n int) {
	m := modelMsg{Kind: k, N: n}
	if k == answered {
		m.Set = w.proc().Refused
	}
	if k == bye {
		w.proc().Bye = true
	}
	w.s.toOld(uint8(w.j), m)
}

func (w takerIn) newcomers(on bool) { w.proc().Accepts = on }

func (w takerIn) serve() {
	s, p := w.s, w.proc()
	take := p.Hand.Set &^ p.Refused
	take.each(func(c int) {
		if s.Conns[c].Epoch != p.Hand.Epochs[c] {
			s.fail("process %d serves an old copy of connection %d", w.j, c)
		}
	})
	s.serve(w.j, take)
	p.Refused.each(func(c int) {
		if x := s.Conns[c]; !s.Lines[w.j].OldEnd && x.Open && x.Touch == 0 {
			s.lose(1 << c) // nobody is left to have it back
		}
	})
	p.Taken += take.len()
	p.Hand, p.Refused = modelMsg{}, 0
}

func (w takerIn) drop() { w.proc().Hand, w.proc().Refused = modelMsg{}, 0 }

// A stepper makes steps: f changes a copy of the state.
type stepper func(fault bool, f func(t *model), format string, a ...any)

func (s *model) steps(all []modelStep, named bool) []modelStep {
	add := func(fault bool, f func(t *model), format string, a ...any) {
		step := modelStep{fault: fault, to: *s}
		if f(&step.to); named {
			step.name = fmt.Sprintf(format, a...)
		}
		all = append(all, step)
	}
	for i := range modelProcs {
		switch s.Procs[i].Life {
		case alive:
			s.world(i, add)
			s.oldSteps(i, add)
			s.newSteps(i, add)
		case absent, unfit:
			s.start(i, add)
		}
	}
	return all
}

// world is what may happen to a process at any time.
func (s *model) world(i int, add stepper) {
	if s.Left.Crashes > 0 {
		add(true, func(t *model) { t.Left.Crashes--; t.end(i, crashed) }, "%d is killed", i)
	}
	if s.Left.Terms > 0 && !s.Procs[i].Term {
		add(true, func(t *model) { t.Left.Terms--; t.Procs[i].Term = true }, "%d gets SIGTERM", i)
	}
	if s.Procs[i].Accepts && s.Conns[2] == (modelConn{}) {
		add(true, func(t *model) { t.Conns[2].Open = true; t.serve(i, 1<<2) }, "%d accepts a newcomer", i)
	}
}

// start is that of a process, which dials the meeting socket.
func (s *model) start(j int, add stepper) {
	if s.Left.Starts == 0 || s.Lines[j].OldEnd || j == 2 && s.Procs[1].Life == absent {
		return
	}
	exists := false // as long as a copy of it is open, or in a message that can still be read
	for k, p := range s.Procs {
		exists = exists || p.Socket && !(s.rules.Hole == "path" && p.Old.phase != idle) ||
			s.Lines[k].NewEnd && s.Lines[k].ToNew[0].Kind == welcome
		if p.Accepts {
			add(true, func(t *model) {
				t.Left.Starts--
				t.forgetKill(j)
				t.Procs[j] = modelProc{Life: alive, New: taker{phase: greets}}
				t.Lines[j] = modelLine{Old: uint8(k), OldEnd: true, NewEnd: true}
				t.toOld(uint8(j), modelMsg{Kind: hello})
			}, "%d starts, and writes hello to %d", j, k)
		}
	}
	if !exists {
		add(true, func(t *model) {
			t.Left.Starts--
			t.forgetKill(j)
			t.Procs[j] = modelProc{Life: alive, New: taker{phase: done}, Accepts: true, Socket: true}
			t.Lines[j] = modelLine{Old: modelProcs}
		}, "%d starts alone", j)
	}
}

// forgetKill: j is another process from now on.
func (s *model) forgetKill(j int) {
	for i := range s.Procs {
		if s.Procs[i].To == uint8(j) {
			s.Procs[i].Kills = false
		}
	}
}

// oldSteps are those of process i as the old one.
func (s *model) oldSteps(i int, add stepper) {
	p := s.Procs[i]
	for j, l := range s.Lines {
		if l.Old == uint8(i) && l.OldEnd && l.ToOld[0].Kind == hello {
			add(false, func(t *model) {
				readMsg(&t.Lines[j].ToOld)
				if p.Old.phase == idle && p.New.phase == done && !p.Term {
					t.toNew(uint8(j), modelMsg{Kind: welcome})
					t.Lines[j].Baton = 0 + 1
					t.Procs[i].To, t.Procs[i].Kills = uint8(j), false
					t.Procs[i].Old.begin()
				} else {
					t.toNew(uint8(j), modelMsg{Kind: busy})
					t.Lines[j].OldEnd = false
				}
			}, "%d answers %d", i, j)
		}
	}
	j, l := p.To, s.Lines[p.To]
	if p.Kills && s.Procs[j].Life == alive {
		add(true, func(t *model) { t.kill(i) }, "%d kills %d", i, j)
	}
	timeout := func(f func(t *model, p *modelProc)) {
		if s.Left.Timeouts > 0 {
			add(true, func(t *model) { t.Left.Timeouts--; f(t, &t.Procs[i]) }, "%d has waited for %d long enough", i, j)
		}
	}
	late := func() {
		timeout(func(t *model, p *modelProc) {
			if p.Old.late(giverIn{t, i}); s.rules.Hole == "divorce" {
				p.Old.goOn(giverIn{t, i})
			}
		})
	}
	switch p.Old.phase {
	case idle:
		if p.Term && p.New.phase == done {
			add(false, func(t *model) { t.end(i, termed) }, "%d has drained", i)
		}
		return
	case sending:
		add(false, func(t *model) {
			t.toNew(j, modelMsg{Kind: batch, N: p.Old.n, Set: p.Batch, Epochs: t.epochs()})
			t.Procs[i].Old.written()
		}, "%d writes batch %d {%03b}", i, p.Old.n, p.Batch)
		late()
		return
	case silent:
		if p.Rest.Kind != noMessage {
			add(false, func(t *model) {
				t.toNew(j, p.Rest)
				t.Procs[i].Rest = modelMsg{}
			}, "%d writes the rest of batch %d", i, p.Old.n)
			return
		}
	case asked, offered, ending:
		if late(); p.Old.phase == ending && s.rules.Hole == "nobye" {
			add(false, func(t *model) { t.end(i, gone) }, "%d ends", i)
		}
	case between:
		if movable := s.owned(i) &^ p.Stays; movable != 0 {
			c := movable & -movable
			add(false, func(t *model) { t.Procs[i].Old.offer(); t.put(i, c) }, "%d takes {%03b} off its loop", i, c)
		} else {
			add(false, func(t *model) { t.Procs[i].Old.nothingLeft(giverIn{t, i}) }, "%d has no more", i)
		}
	}
	if p.Term && (p.Old.phase == silent || p.Old.phase == ending) {
		timeout(func(t *model, _ *modelProc) { t.end(i, termed) }) // it drains what it has
	}
	switch m := l.ToOld[0]; {
	case m.Kind == ready:
		add(false, func(t *model) { t.Procs[i].Old.preparationFailed(giverIn{t, i}) }, "%d refuses %d after a rehearsal", i, j)
		add(false, func(t *model) { t.Lines[j].Full = true; t.Procs[i].Old.preparationFailed(giverIn{t, i}) }, "%d cannot say that it refuses %d", i, j)
		fallthrough
	case m.Kind != noMessage:
		add(false, func(t *model) { t.old(i, readMsg(&t.Lines[j].ToOld)) }, "%d reads %v from %d", i, m, j)
	case !l.NewEnd:
		add(false, func(t *model) { t.Procs[i].Old.lineEnded(giverIn{t, i}) }, "%d finds that %d is gone", i, j)
	}
}

// newStep is one of process j as the new one.
func (s *model) newStep(j int, f func(n *taker, do takerIn)) {
	n := &s.Procs[j].New
	before, old := n.phase, s.Lines[j].Old
	if f(n, takerIn{s, j}); n.phase == failed {
		if before == leaving && old < modelProcs && s.Procs[old].Life == gone && s.Procs[old].To == uint8(j) {
			s.fail("%d fails, though everything has moved to it", j)
		}
		s.end(j, map[bool]life{true: termed, false: unfit}[before == leaving])
	}
}

// newSteps are those of process j as the new one.
func (s *model) newSteps(j int, add stepper) {
	p, l := s.Procs[j], s.Lines[j]
	step := func(f func(t *model, n *taker, do takerIn)) func(t *model) {
		return func(t *model) { t.newStep(j, func(n *taker, do takerIn) { f(t, n, do) }) }
	}
	switch p.New.phase {
	case idle, done:
		return
	case greets:
		if p.Term {
			add(false, func(t *model) { t.end(j, termed) }, "%d ends", j)
		}
		if p.Socket { // it reads nothing
			add(true, func(t *model) { t.end(j, unfit) }, "%d cannot start", j)
			add(false, step(func(_ *model, n *taker, do takerIn) { n.started(do) }), "%d has started", j)
			return
		}
		if m := l.ToNew[0]; m.Kind == busy || m.Kind == noMessage && !l.OldEnd {
			add(false, func(t *model) { t.end(j, unfit) }, "%d is not welcome", j)
			return
		}
	case prepared, charge:
		if p.Term { // the old one goes on with what it has
			add(false, step(func(t *model, n *taker, do takerIn) {
				if n.end(do); s.rules.Hole == "hurry" {
					t.end(j, termed)
				}
			}), "%d leaves", j)
		}
	case parting:
		if p.Term && s.rules.Hole == "part" {
			add(false, step(func(_ *model, n *taker, do takerIn) { n.end(do) }), "%d leaves", j)
		}
		if p.Term && s.Left.Timeouts > 0 && l.OldEnd && l.ToNew[0].Kind == noMessage {
			add(true, func(t *model) { t.Left.Timeouts--; t.end(j, termed) }, "%d has drained, and waits for %d no more", j, l.Old)
		}
	case deciding:
		add(false, step(func(t *model, n *taker, do takerIn) { n.decide(do) }), "%d looks for the baton of batch %d", j, p.Hand.N)
		return
	case telling:
		add(false, step(func(_ *model, n *taker, do takerIn) { n.tell(do) }), "%d says that it has batch %d", j, p.New.n)
		return
	case leaving: // it looks at the clock when it has read everything
		if s.Left.Timeouts > 0 && l.OldEnd && l.ToNew[0].Kind == noMessage {
			add(true, func(t *model) { t.Left.Timeouts--; t.end(j, termed) }, "%d has drained, and waits for %d no more", j, l.Old)
		}
	}
	switch m := l.ToNew[0]; {
	case m.Kind == noMessage && !l.OldEnd:
		add(false, step(func(_ *model, n *taker, do takerIn) { n.lineEnded(do) }), "%d finds that %d is gone", j, l.Old)
	case m.Kind == batch:
		for refused := connSet(0); refused <= m.Set; refused++ { // Accept says: any part
			if refused&^m.Set == 0 && (refused == 0 || p.New.phase != leaving) {
				add(false, step(func(t *model, n *taker, do takerIn) {
					t.Procs[j].Hand, t.Procs[j].Refused = readMsg(&t.Lines[j].ToNew), refused
					n.gotBatch(do, m.N)
				}), "%d accepts %v except {%03b}", j, m, refused)
			}
		}
	case m.Kind != noMessage:
		add(false, step(func(t *model, n *taker, do takerIn) {
			readMsg(&t.Lines[j].ToNew)
			if p.New.phase == greets && m.Kind == welcome {
				t.Procs[j].Socket = true
			} else if !n.hear(do, m.Kind) {
				t.fail("the new process %d cannot take %v in phase %d", j, m, n.phase)
			}
		}), "%d reads %v", j, m)
	}
}

// checkRest checks a state in which nothing happens any more unless the world does something.
func (s *model) checkRest() {
	living, accepting, ended := 0, 0, 0
	for j, p := range s.Procs {
		if p.Life == alive {
			if living++; p.New.phase != done || p.Old.phase != idle {
				s.fail("a handover hangs")
			}
			if p.Accepts {
				accepting++
			}
		} else if p.Life == crashed || p.Life == termed {
			ended++
		}
		l := s.Lines[j]
		if l.Old >= modelProcs || s.Procs[l.Old].Life != gone || s.Procs[l.Old].To != uint8(j) || p.Life < alive || p.Life == unfit {
			continue
		}
		if !p.Bye {
			s.fail("process %d has retired, and its successor was not told of that", l.Old)
		} else if s.Procs[l.Old].Moved != p.Taken {
			s.fail("the reports differ: %d moved, %d taken", s.Procs[l.Old].Moved, p.Taken)
		}
	}
	switch {
	case living > 0 && accepting != 1:
		s.fail("%d processes accept newcomers in the end", accepting)
	case living == 0 && ended == 0:
		s.fail("all have ended, though none was to")
	}
	for c, x := range s.Conns {
		if x.Open && x.Touch.len() != 1 {
			s.fail("connection %d is nobody's", c)
		}
		if x.Lost && s.Procs[0].Life != crashed && s.Procs[1].Life != crashed && s.Procs[2].Life != crashed {
			s.fail("connection %d is lost without a crash", c)
		}
	}
}

// explore visits all states, breadth first. It returns their number, and the shortest way to a
// broken promise, or "". Progress, the steps that are no faults, must not go round in a circle.
func explore(left budget, r rules) (states int, broken string) {
	first := model{Left: left, rules: r}
	first.Procs[0] = modelProc{Life: alive, New: taker{phase: done}, Accepts: true, Socket: true}
	for j := range first.Lines {
		first.Lines[j].Old = modelProcs
	}
	first.Conns[0], first.Conns[1] = modelConn{Open: true, Touch: 1}, modelConn{Open: true, Touch: 1}

	seed := maphash.MakeSeed()
	ids := map[uint64]int32{maphash.Comparable(seed, first): 0}
	parent, choice := []int32{-1}, []uint8{0}
	begin, edges := []int32{}, []int32{} // steps of progress: those of state i begin at begin[i]
	report := func(id int32, why string) (int, string) {
		var path []uint8
		for ; id > 0; id = parent[id] {
			path = append(path, choice[id])
		}
		var text strings.Builder
		s := first
		for k := len(path) - 1; k >= 0; k-- {
			step := s.steps(nil, true)[path[k]]
			fmt.Fprintf(&text, "%s\n", step.name)
			s = step.to
		}
		return len(parent), text.String() + why
	}
	var steps []modelStep
	for layer := []model{first}; len(layer) > 0; {
		var next []model
		for i := range layer {
			s, id := &layer[i], int32(len(begin))
			begin = append(begin, int32(len(edges)))
			steps = s.steps(steps[:0], false)
			for k := range steps {
				step := &steps[k]
				h := maphash.Comparable(seed, step.to)
				to, seen := ids[h]
				if !seen {
					to = int32(len(parent))
					ids[h] = to
					parent, choice = append(parent, id), append(choice, uint8(k))
					next = append(next, step.to)
				}
				if step.to.Bad != "" {
					return report(to, step.to.Bad)
				}
				if !step.fault {
					edges = append(edges, to)
				}
			}
			if len(edges) == int(begin[id]) {
				if s.checkRest(); s.Bad != "" {
					return report(id, s.Bad)
				}
			}
		}
		layer = next
	}
	if id := circle(append(begin, int32(len(edges))), edges); id >= 0 {
		return report(id, "the processes can go round in a circle, of which this state is one")
	}
	return len(parent), ""
}

// circle takes states away that no step leads to, again and again. What is left is in a circle, or
// behind one.
func circle(begin, edges []int32) int32 {
	n := len(begin) - 1
	into, free := make([]int32, n), []int32{}
	for _, to := range edges {
		into[to]++
	}
	for i := range n {
		if into[i] == 0 {
			free = append(free, int32(i))
		}
	}
	for k := 0; k < len(free); k++ {
		for _, to := range edges[begin[free[k]]:begin[free[k]+1]] {
			if into[to]--; into[to] == 0 {
				free = append(free, to)
			}
		}
	}
	for i := range n {
		if into[i] > 0 {
			return int32(i)
		}
	}
	return -1
}

// At most one process touches a connection, none serves an old copy of one, none is lost without a
// kill -9, and in the end exactly one process accepts.
func TestModel(t *testing.T) {
	budgets := []budget{{1, 1, 1, 1}, {1, 0, 2, 1}}
	switch {
	case os.Getenv("LOOPWHEEL_SLOW") != "":
		budgets = []budget{{1, 1, 2, 2}}
	case testing.Short():
		budgets = budgets[:1]
	}
	if *modelBudget != "" {
		var b budget
		if _, err := fmt.Sscanf(*modelBudget, "%d,%d,%d,%d", &b.Crashes, &b.Terms, &b.Starts, &b.Timeouts); err != nil {
			t.Fatalf("-model %s: %v", *modelBudget, err)
		}
		budgets = []budget{b}
	}
	for _, b := range budgets {
		for _, together := range []bool{false, true} {
			t.Run(fmt.Sprintf("%v, together %v", b, together), func(t *testing.T) {
				states, broken := explore(b, rules{Together: together})
				if t.Logf("%d states", states); broken != "" {
					t.Error(broken)
				}
			})
		}
	}
}

// Without any one of these rules a promise is broken, and the model finds out.
func TestModelFindsHoles(t *testing.T) {
	if testing.Short() {
		t.Skip("the model has no time for its holes")
	}
	for _, hole := range []string{"late", "unread", "keep", "divorce", "nobaton", "nobye", "hurry", "path", "again", "kill", "part"} {
		t.Run(hole, func(t *testing.T) {
			if _, broken := explore(budget{1, 1, 2, 1}, rules{Hole: hole}); broken == "" {
				t.Error("nothing is broken, want a broken promise")
			}
		})
	}
}
