package handover

// This file is the protocol: the states of the old process and of the new one, and what each does
// when a message comes, when it has waited long enough, and when the other process is gone. There
// is no I/O and no clock in it, so that model_test.go can explore all orders of steps and faults
// with the very code that runs.
//
//	old: giving, a giver   (its phase)   the line          new: taking, a taker    (its phase)
//
//	hearHello, beginGiving     (asked)  ◀── hello          meet, greet                (greets)
//	welcome: baton 0 is down            item, welcome ──▶  gotItem
//	prepare: no newcomers               ◀── ready          take, started            (prepared)
//	rehearse: the State, copies         rehearse ──▶       rehearse
//	                                    ◀── rehearsed
//	preparationDone, offer   (sending)
//	writeBatch               (offered)  batch n ──▶        acceptAll, gotBatch      (deciding)
//	got: those refused go on            ◀── answered n
//	                                    baton n            decide: serve             (telling)
//	gone                     (between)  ◀── took n         tell                       (charge)
//	next, for batch n+1; nothingLeft
//	                          (ending)  over ──▶           announce
//	retire                   (retired)  ◀── bye                                   (parting)
//	                                    the line ends      lineEnded                    (done)
//
// Where these are, in order:
//
//	meet.go:    meet → greet (new) → answer → hearHello (old)
//	old.go:     beginGiving → run → welcome
//	handover.go: becomeReady (starts the Server)
//	new.go:     take → got
//	old.go:     prepare → rehearse
//	state.go:   sendState
//	sweep.go:   everything (batch 0, empty without a State)
//	old.go:     next
//	sweep.go:   next → take (the batches after it)
//	../move.go: freeze (of a Server) → moveOut → freeze (of a Conn)
//	old.go:     writeBatch
//	new.go:     acceptAll
//	../movein.go: moveIn → arriveFrozen
//	protocol.go: gotBatch → decide → tell
//	new.go:     serve
//	../move.go: thaw → unfreeze
//	old.go:     got → gone → keep (it came back) → retire
//
// If the old one has waited too long, it takes the baton back, and the batch with it (silent),
// until the new one says that it has missed the baton. If the new one has it, its answer says which
// connections it has refused. If the new one ends before it has a baton, or says leave, the old one
// goes on with all that it has not given. If the old one dies, the new one has what it has the
// batons of.
//
// Beside their socket, the line, both processes have the read end of a pipe. Before the old one
// writes batch n it puts one byte, the baton, into that pipe. Who reads the byte owns the batch:
// the kernel gives it to one process, so each can decide alone, at any time. Batch 0 is the right
// to accept newcomers, and with a State everything else, too.

// A kind is what a message is.
type kind byte

const (
	noMessage  kind = iota
	hello           // new: who it is; n is the number of its process
	welcome         // old: the meeting socket and the pipe follow
	item            // old: a listener; n is as in hello
	busy            // old: another handover is under way, or it is to end; ask again; the same
	refuse          // old: a reason, for people; the same in answer to hello
	ready           // new: nothing is left that can fail
	stateData       // old: a piece of the State
	rehearse        // old: copies of connections follow
	rehearsed       // new: which of them it does not take
	connection      // old: one of the batch, or of the rehearsal
	batch           // old: batch n is whole
	answered        // new: Accept has returned for batch n, and refused those listed; written before the baton is read
	took            // new: the baton was there
	missed          // new: the baton was gone
	leave           // new: it is ending, so the old one is in charge
	over            // old: what stays
	bye             // new: the old one may retire
)

// A phase is a state of one side.
type phase uint8

const (
	idle    phase = iota // old: no handover
	asked                // the new one starts what it needs
	sending              // the baton is down, or about to be, and the batch is not written yet
	offered              // the batch is written
	between              // no batch is on its way
	silent               // the baton has decided, and the new one has said nothing since: half of the batch may be unwritten
	ending               // everything has moved that can
	retired              // the new one has said bye

	greets   // new: hello is written; the sockets come, and the program starts what it needs
	prepared // ready is written
	deciding // answered is written: now for the baton
	telling  // the baton was there: took follows
	charge   // newcomers are ours, and the rest is coming
	parting  // bye is written: the old one retires, unless newcomers have come to it again
	leaving  // it ends, and has said so
	done     // there is no old process any more
	failed   // the old one has everything
)

// A giverDoes carries out what a giver decides.
type giverDoes interface {
	takeBaton(n int) bool // reads the pipe
	awaitAnswer(n int)    // hears the next message, if it is answered n
	send(k kind, n int)
	newcomers(on bool) // accepts them, and hellos
	keep()             // the batch is this process' again; it may be offered anew, as another batch
	gone()             // the batch is the new one's
	forget()           // closes the line; nothing of the attempt is left
}

// A giver is the old process' side.
type giver struct {
	phase phase
	n     int  // the number of the batch
	heard bool // answered n has come
	again bool // newcomers were accepted since over was written: they want to move, too
}

// goOn ends the attempt: this process is in charge of all that it has. No last message is needed,
// and none might fit into the line: the baton is gone.
func (g *giver) goOn(do giverDoes) {
	do.takeBaton(g.n)
	do.forget()
	do.newcomers(true)
	*g = giver{}
}

// decideBatch decides about the batch on its way, without the new process. If that has the baton,
// it has written before which connections it refuses, and since then nothing else.
func (g *giver) decideBatch(do giverDoes) (ours bool) {
	if ours = do.takeBaton(g.n); ours {
		do.keep()
		return true
	}
	if !g.heard {
		do.awaitAnswer(g.n)
	}
	do.gone()
	return false
}

// begin is for a successor that was welcomed.
func (g *giver) begin() { *g = giver{phase: asked} }

// preparationFailed: the new process does not take over, or not all that it must.
func (g *giver) preparationFailed(do giverDoes) {
	do.takeBaton(0) // first: if refuse cannot be written, the new one finds that the line has ended
	do.send(refuse, 0)
	g.goOn(do)
}

// preparationDone: it is ready, and the rehearsal was good.
func (g *giver) preparationDone(do giverDoes) {
	do.newcomers(false)
	g.offer()
}

// offer begins with the next batch: writeBatch puts its baton down, except for that of batch 0.
func (g *giver) offer() {
	if g.heard = false; g.phase == between {
		g.n++
	}
	g.phase = sending
}

// written: the batch is in the line.
func (g *giver) written() { g.phase = offered }

// nothingLeft: no connection is left that can move.
func (g *giver) nothingLeft(do giverDoes) {
	do.send(over, 0)
	g.phase, g.again = ending, false
}

// late: this process has waited long enough.
func (g *giver) late(do giverDoes) {
	switch g.phase {
	case asked:
		g.goOn(do)
	case sending, offered: // in sending the line is full, so the batch is ours
		if g.decideBatch(do) && g.n == 0 {
			g.goOn(do)
			return
		}
		g.phase = silent
		do.newcomers(true) // until the other speaks again
	case ending:
		do.newcomers(true)
		g.again = true
	}
}

// lineEnded: the new process is gone, and everything that it wrote has been heard.
func (g *giver) lineEnded(do giverDoes) {
	if g.phase == offered {
		g.decideBatch(do)
	}
	g.goOn(do)
}

// hear is what this process does with a message, other than ready and rehearsed, which it awaits.
// False: the message does not belong here.
func (g *giver) hear(do giverDoes, k kind, n int) bool {
	switch {
	case k == leave && g.phase != idle:
		g.lineEnded(do)
	case g.phase == offered && k == answered && n == g.n:
		g.heard = true
	case g.phase == offered && k == took && n == g.n:
		do.gone()
		g.phase = between
	case g.phase == silent && k == answered:
	case g.phase == silent && (k == took || k == missed):
		g.phase = between
		do.newcomers(false)
	case g.phase == ending && k == bye:
		do.newcomers(false)
		if g.phase = retired; g.again {
			g.phase = between
		}
	default:
		return false
	}
	return true
}

// A takerDoes carries out what a taker decides.
type takerDoes interface {
	takeBaton(n int) bool
	send(k kind, n int)
	newcomers(on bool)
	serve() // the batch in hand is ours
	drop()  // it is not
}

// A taker is the new process' side.
type taker struct {
	phase phase
	n     int  // of the batch in hand
	whole bool // there is one
}

// started: everything that the program needs runs.
func (t *taker) started(do takerDoes) {
	do.send(ready, 0)
	t.phase = prepared
}

// gotBatch: the connections of batch n are here, and those that are wanted have been accepted.
func (t *taker) gotBatch(do takerDoes, n int) {
	t.n, t.whole = n, true
	if t.phase == leaving { // which decides when the line is at its end
		return
	}
	do.send(answered, n)
	t.phase = deciding
}

// decide is what follows answered.
func (t *taker) decide(do takerDoes) {
	t.whole = false
	switch {
	case do.takeBaton(t.n):
		do.serve()
		do.newcomers(true)
		t.phase = telling
	case t.n == 0:
		do.drop()
		t.phase = failed
	default:
		do.drop()
		do.send(missed, t.n)
		t.phase = charge
	}
}

// tell says that the batch was taken.
func (t *taker) tell(do takerDoes) {
	do.send(took, t.n)
	t.phase = charge
}

// end: the program is to end, in prepared or charge. In parting everything has moved, and all is
// well when the old process has retired: then this one drains.
func (t *taker) end(do takerDoes) {
	do.send(leave, 0)
	do.newcomers(false)
	t.phase = leaving
}

// hear is what this process does with a message that is no batch, once it is prepared.
func (t *taker) hear(do takerDoes, k kind) bool {
	switch {
	case t.phase == leaving:
	case t.phase == prepared && k == refuse:
		t.phase = failed
	case (t.phase == charge || t.phase == parting) && k == over:
		do.send(bye, 0)
		t.phase = parting
	default:
		return false
	}
	return true
}

// lineEnded: the old process is gone, and everything that it wrote has been heard. Before this one
// is in charge, the baton tells whether the old one is dead, or has given up.
func (t *taker) lineEnded(do takerDoes) {
	switch t.phase {
	case prepared:
		if !do.takeBaton(0) {
			t.phase = failed
			return
		}
		t.phase = done
		do.newcomers(true)
	case charge, parting:
		t.phase = done
	case leaving: // what the old one gave before it died drains, too
		if t.whole && do.takeBaton(t.n) {
			do.serve()
		} else if t.whole {
			do.drop()
		}
		t.phase = failed
	}
}
