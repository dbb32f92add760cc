package loop

// A state is where a connection is in its life. They come in this order; some are left out.
type state uint32

const (
	stateOpening   state = iota // in Accept
	stateOpen                   // messages, timers, hooks, Tells
	stateFinishing              // the server drains, and what was offloaded is waited for (without input), or SetBusy(false)
	stateClosing                // Close was called, or what counts as that; the turn that did goes on
	stateSpeaking               // OnClosing and the codec's farewell have the last words
	stateFlushing               // what was sent is written; nothing else happens
	stateLingering              // OnClose has run; the peer's end is waited for
	stateClosed                 // the socket is gone
	numStates
)

// follows says which states may come after each one.
var follows = [numStates][]state{
	stateOpening:   {stateOpen, stateClosing},
	stateOpen:      {stateFinishing, stateClosing},
	stateFinishing: {stateClosing},
	stateClosing:   {stateSpeaking, stateFlushing, stateLingering, stateClosed},
	stateSpeaking:  {stateFlushing},
	stateFlushing:  {stateLingering, stateClosed},
	stateLingering: {stateClosed},
}

func (c *Conn) at() state { return state(c.state.Load()) }

// enter is the only place where the state changes.
func (c *Conn) enter(s state) {
	c.loop.inspection.enters(c, s)
	c.state.Store(uint32(s))
}

// isOpen reports whether c's code may run: messages, timers, hooks, Tells.
func (c *Conn) isOpen() bool {
	return c.state.Load()-uint32(stateOpen) <= uint32(stateFinishing-stateOpen)
}

// isClosing reports whether the end of c has begun.
func (c *Conn) isClosing() bool { return c.at() >= stateClosing }

// isOver reports whether OnClose has run, or is about to.
func (c *Conn) isOver() bool { return c.at() >= stateLingering }
