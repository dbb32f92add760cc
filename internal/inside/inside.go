// Package inside gives packages of this module what package loop has and does not show. Package
// loop gives tables of functions when it is initialized. A package that imports it takes one, with
// package loop's types in place of the parameters:
//
//	var in = inside.Take[inside.ForHandler[*loop.Conn, *loop.Loop, loop.Ref, loop.Dialer]]()
//
// Functions with a Conn or a Loop are called on the loop, unless their comments say otherwise.
package inside

import (
	"fmt"
	"net"
	"reflect"
	"strings"
	"time"

	"github.com/loopwheel/loopwheel/internal/wheel"
)

var tables []any

// Give makes a table known. Package loop calls it when it is initialized.
func Give(table any) { tables = append(tables, table) }

// Take returns the table of a type. It panics if package loop has given none.
func Take[T any]() *T {
	for _, t := range tables {
		if t, ok := t.(*T); ok {
			return t
		}
	}
	panic(fmt.Sprintf("inside: package loop gives no %T", new(T)))
}

// ForHandler is what package handler uses.
type ForHandler[Conn, Loop, Ref, Dialer any] struct {
	// TellOr is a Tell that says when f was dropped. Of f and dropped exactly one is called, on the
	// connection's loop, if the error is nil; neither, if not. Any goroutine may call it.
	TellOr func(to Ref, f func(Conn), dropped func()) error

	// Check panics, as methods of package loop do, if it is called on another goroutine than that
	// of the loop, and calls are looked at.
	Check func(l Loop, method string)

	// OnLoop reports whether the goroutine that calls is a loop's. It takes a microsecond.
	OnLoop func() bool

	// Try calls f, and returns its panic as a *PanicError, which has been logged and counted.
	Try func(l Loop, f func()) error

	// PostPieces is Post for work that takes long and must keep its place in the mailbox. f is
	// called until it returns false, and what was posted after it waits. Between two calls the loop
	// writes what was sent, and when a millisecond is over it polls its sockets and runs its
	// timers. The number counts what was put into the mailbox: between n and n+1 there is nothing
	// else. The errors are TryPost's, but a callback of a connection gets no ErrMailboxFull. Any
	// goroutine may call it.
	PostPieces func(l Loop, f func() (more bool)) (number uint64, err error)

	// AfterStop calls f as the last thing on the loop, after Server.OnStop, when Post does not work
	// any more; at once if the loop has ended already. Functions run in the order they were added.
	// A panic in one is logged and counted.
	AfterStop func(l Loop, f func())

	// Draining reports whether the loop starts no more dials: its server drains, or it has ended.
	Draining func(l Loop) bool

	// DialerError returns what is wrong with a Dialer or addr, whatever the network is like, or
	// nil. Any goroutine may call it.
	DialerError func(d Dialer, addr string) error

	// OwesReplies and AwaitsAnswers keep a connection open in a drain, and where it is in a
	// handover: for each call with true there is one with false. One that only owes replies is not
	// read meanwhile.
	OwesReplies, AwaitsAnswers func(c Conn, on bool)

	// State returns what package handler keeps of a connection, as make makes it the first time;
	// nil if the connection has closed by then, and there is none.
	State func(c Conn, make func() ConnState[Loop]) ConnState[Loop]

	// IsHere reports whether a connection lives on a loop, and nothing of its last one is to come
	// first. Reach calls f for one of which that is false, in the order in which its Tells run: it
	// sends f on, or keeps it. Both are called on the loop, for something that reached that after
	// the connection lived on it.
	IsHere func(l Loop, c Conn) bool
	Reach  func(l Loop, c Conn, f func(Conn))

	// Current returns the connection whose code runs on a loop, or the zero Conn.
	Current func(l Loop) Conn

	// PostFor calls f on the loop of a connection, in the order of its Tells, also when it has
	// closed. Any goroutine may call it. An error: that loop has ended.
	PostFor func(c Conn, f func()) error

	// Pin keeps a connection on its loop: see Conn.MoveTo. With last, a drain of the server also
	// closes it after all others.
	Pin func(c Conn, last bool)

	// IsClosing reports whether the close has begun.
	IsClosing func(c Conn) bool

	// Input reports whether input of a connection waits that is to be delivered soon, and when some
	// was last read, by the loop's clock.
	Input func(c Conn) (waits bool, read time.Duration)

	// Unread returns for how long a connection was not read in all, by no fault of its peer: the
	// loop was away, or reading was paused. The first call begins to measure the latter.
	Unread func(c Conn) time.Duration

	// HoldRead stops reading, or goes on, as PauseRead and ResumeRead do but apart from them. It
	// does not count how often it was called.
	HoldRead func(c Conn, on bool)

	// MaxOutbound returns how much may be pending before Send fails. Any goroutine may call it.
	MaxOutbound func(c Conn) int

	// BeforeClose is Conn.AfterClose for functions that end callbacks of the user's: they run when c
	// is closed, and before OnClose.
	BeforeClose func(c Conn, f func(err error))

	// WhenPending reports whether at most max bytes of output are pending. If not, f is called on
	// the loop once that is so, in a turn of its own, unless c closes before. Several functions may
	// wait. With a nil f it only reports.
	WhenPending func(c Conn, max int, f func()) bool

	// TakesOutput reports whether output is still taken at all: not if c closes, or after
	// CloseWrite.
	TakesOutput func(c Conn) bool

	// CheckWrite returns the error that Write would return now, or nil, and closes c as Write
	// would. It appends nothing, and runs no hook of c.
	CheckWrite func(c Conn) error

	// CountHeld has n bytes more, or fewer, that are held for a connection count against
	// Limits.MaxBuffered. They are forgotten when its close begins.
	CountHeld func(c Conn, n int)

	// IsPiped reports whether a connection is in a Pipe.
	IsPiped func(c Conn) bool

	// Warn logs a warning that peers can cause, each text at most once a second.
	Warn func(c Conn, err error, text string)
}

// A ConnState is what package handler keeps of a connection.
type ConnState[Loop any] interface {
	// Closing is called with the reason when the close begins.
	Closing(err error)

	// Leave is called on the loop that the connection leaves, with the one where it goes and the
	// states of all that go along, this one included. It must call leave, after which they belong
	// to that loop.
	Leave(from, to Loop, all []ConnState[Loop], leave func())

	// Left is called on the loop that the connection has left, when all has been sent on that was
	// told to it there.
	Left(from Loop)
}

// Handover moves addresses and living connections from one Server to another. Its functions may be
// called from any goroutine but a loop's.
type Handover[Server any] struct {
	// Bound returns the addresses of a Server that was started. Their listeners remain the
	// Server's.
	Bound func(s Server) []Bound

	// Inherit has Start take these listeners where a Server has their addresses, in place of new
	// ones. In from it sets those to nil that are the Server's from then on. It must be called
	// before Start, which then waits up to two seconds for an address that a process that is being
	// killed still has, and does not accept before AcceptNewcomers says so.
	Inherit func(s Server, from []Bound)

	// AcceptNewcomers has the listeners accept, or not, so that newcomers wait in the system's
	// queues. Then it returns when what was accepted has arrived on its loop, or after wait. If an
	// Accept of the user's does not end, what it returns waits until newcomers are accepted again,
	// or the Server stops accepting.
	AcceptNewcomers func(s Server, on bool, wait time.Duration)

	// StopAccepting closes the listeners, as the end of the Server does.
	StopAccepting func(s Server)

	// SetInCharge says whether the Server is the one in charge. Only then it removes the files of
	// unix sockets in the end, and dials with Dialer.MoveAs: until then these wait for connections
	// that move. After Inherit it is not.
	SetInCharge func(s Server, on bool)

	// AllowHops says whether connections may change their loops by MoveTo. With false it returns
	// when those that were about to have arrived, so that a Cursor meets all, or after wait.
	AllowHops func(s Server, on bool, wait time.Duration)

	// PauseInput stops the input of connections, so that they come to rest. PauseNone ends that,
	// and forgets which connections were refused. It does not wait: what is asked of a loop
	// afterwards comes after it.
	PauseInput func(s Server, which Paused)

	// Freeze takes connections off the loop at the Cursor, for MoveIn of another Server, at most
	// max with about size bytes of states and buffers; fewer, or none, if the loop's time for that
	// is over. It sets the Cursor to where to go on.
	Freeze func(s Server, c *Cursor, max, size int) []*Moved

	// FreezePorts takes the sockets of UDP off the loop at the Cursor, each with its sessions and
	// after these, and sets the Cursor to the next loop.
	FreezePorts func(s Server, c *Cursor) []*Moved

	// Copies returns copies of connections that were accepted and are not in a Pipe, at most perKind
	// of each kind, as Moved without Socket and without the keys of TLS. It leaves out loops that
	// are blocked, as a Cursor with this Wait does.
	Copies func(s Server, addrs []string, perKind int, wait time.Duration) []*Moved

	// CountStaying returns how many connections there are, by the reason for which they stay. It
	// calls no Save: where that has failed it is the last Freeze that has found out.
	CountStaying func(s Server, addrs []string, wait time.Duration) map[Reason]int

	// MoveIn gives moved connections to the Server, and waits until Accept has returned for each,
	// but no longer than wait. Where it has not, another Moved with an Err takes the place.
	// They are frozen, until Thaw. Moved.Err says which ones the Server does not take: they are for
	// Drop. Limits are not applied. Accept, or the dialer, finds the state of the handler in
	// Conn.Saved. Those with an Err are left out.
	MoveIn func(s Server, batch []*Moved, wait time.Duration)
}

// Paused says whose input is paused.
type Paused uint8

// Whose input is paused.
const (
	PauseNone Paused = iota
	PauseJobs        // that of connections with jobs or replies under way
	PauseAll         // also that of others, except for those that await something of their peers
)

// A Cursor is where Freeze goes on. The zero Cursor is at the first loop.
type Cursor struct {
	Loop int
	Next int // it looks at those before this place; 0: at all of the loop

	Wait         time.Duration  // a loop that has not answered by then is passed over: its connections are Blocked
	Addrs        []string       // of the other Server: a connection of another one cannot move
	Kinds        map[Kind]bool  // only the first of each kind is taken, and it is noted here; nil: all are
	PauseBlocked bool           // pauses the input of those whose output waits, so that no more comes
	Stays        map[Reason]int // counts those that cannot move, unless it is nil
	Starved      func()         // is called on the loop when no descriptor is free for a copy of a socket: it frees some
}

// A Reason is why a connection does not move.
type Reason uint8

// The reasons.
const (
	Moves Reason = iota // it does
	Refused
	NoSave
	OfUDP
	OfTLS
	OfDial
	NoAddress
	OfNet
	NoCodec

	// These may pass.
	Handshake
	NotReady
	Blocked
	Busy
	Jobs
	SaveFailed
	OutputWaits
	NoSocket
	ComingBack
	TooLate
)

func (r Reason) String() string {
	return [...]string{"", "refused", "no Save", "UDP", "TLS", "dialed", "no address", "net.Conn", "codec",
		"handshake", "not ready", "loop blocked", "busy", "jobs", "Save failed", "output waits", "no socket", "on its way back", "too late"}[r]
}

// MayPass reports whether it may move later.
func (r Reason) MayPass() bool { return r >= Handshake }

// A Kind of connections is an address, as in Bound, a type of handlers and a type of codecs.
type Kind struct {
	Addr           string
	TLS            bool
	Handler, Codec reflect.Type
}

// A Bound is a socket at which a Server listens. Listeners with AcceptFrom and without a name are
// not among them. Of a UDP address there may be several, in their order.
type Bound struct {
	Addr     string // as in the Server's fields: "tcp://:7000" or "name://tunnel"
	Listener net.Listener
	Packets  net.Conn // in its place, of UDP
}

// IsUDP reports whether it is of UDP.
func (b Bound) IsUDP() bool { return strings.HasPrefix(b.Addr, "udp") }

// Moved is a connection between two Servers: all that the first one knew of it.
type Moved struct {
	Kind                   // only Addr in another process
	Socket        any      // in the old process, for its descriptor; nil: a copy for a rehearsal, which is only for Drop
	Net           net.Conn // in the new process: the same
	Local, Remote net.Addr
	TLVs          []TLV
	Input         []byte // read and not delivered
	Output        []byte // sent and not written
	OutputEnded   bool   // CloseWrite was called; the peer's own end shows in the socket again
	Paused        bool   // PauseRead
	Pipe          uint64 // 1, 2: the first and the second end of a Pipe, which come one after the other
	Piped         uint64 // bytes that came from here for the other end

	// Of a session of UDP: the place of its socket, from 1, which is also that of the socket
	// itself, without a Remote; the address that it answers from; and what LimitReplies looks at.
	Port                       uint64
	At                         string
	BytesIn, BytesOut, Replies uint64

	// Ages: how long ago it was opened, and read and written last. Negative: never.
	Opened, LastRead, LastWrite time.Duration
	IdleTimeout                 time.Duration // of SetIdleTimeout; negative: the Server's

	TLS     []byte // with its secrets; nil: it is plain
	Codec   []byte // by codec.Saver
	Handler []byte // by loop.Saver
	Frozen  time.Time

	// Thaw gives it to this Server, which runs it: again in the old process, or for the first
	// time in the new one. refused: the old one does not offer it again in this handover. Drop
	// says that it is not this Server's, and OnClose gets the error, if it had an Accept. Any
	// goroutine may call one of them, once.
	Thaw func(refused bool)
	Drop func(err error)

	Err    error  // of MoveIn: why it is not taken
	Served func() // called by MoveIn's Server on the loop when it runs; nil: nobody asks
}

// Size returns about how many bytes it takes on its way.
func (m *Moved) Size() int { return 256 + len(m.Input) + len(m.Output) + len(m.Codec) + len(m.Handler) }

// Discard closes the socket's copy, if there is one, and erases the secrets of TLS.
func (m *Moved) Discard() {
	clear(m.TLS)
	if m.Net != nil {
		_ = m.Net.Close()
	}
}

// A TLV is one note in a header of the PROXY protocol, version 2.
type TLV struct {
	Type  byte
	Value []byte
}

// ForMetrics is what package loopmetrics shows.
type ForMetrics[Conn, Loop any] struct {
	// PostPieces is ForHandler.PostPieces.
	PostPieces func(l Loop, f func() (more bool)) (number uint64, err error)

	// ConnsFrom yields those of Conns that are among the n connections from a place of the loop's
	// list on, the first of which is 0, for walks in pieces that must not hold up the loop. next is
	// the place to go on from; 0 means that this piece has the end of the list. Between two pieces
	// connections that close give their places to others, which the walk may miss then.
	ConnsFrom func(l Loop, place, n int) (conns func(yield func(Conn) bool), next int)

	// Info returns what there is to see of a connection. It takes some 100 ns.
	Info func(c Conn) ConnInfo

	// Wheel returns the loop's timing wheel as it can be drawn, in constant time, and its numbers.
	Wheel func(l Loop) ([]wheel.Ring, wheel.Stats)

	// SlowTurns returns the longest turns of the last ten minutes, the longest first: eight at
	// most, and none shorter than a millisecond. As for LoopStats.Turn, short ones are measured now
	// and then only. Any goroutine may call it.
	SlowTurns func(l Loop) []SlowTurn
}

// Meter is for package loopmetrics, too, which knows meter.Record.
type Meter[Loop, Record any] struct {
	// Read returns what a loop has measured since the start. Any goroutine may call it.
	Read func(l Loop) Record
}

// ConnInfo is what there is to see of a connection.
type ConnInfo struct {
	ID        uint64
	Remote    net.Addr
	Handler   string    // the type of the innermost Handler, within all middlewares
	Opened    time.Time // times are those of the turns in which it happened
	LastRead  time.Time // when bytes came last, or it was opened
	LastWrite time.Time // when the system took bytes last, or it was opened
	Pending   int       // bytes of output that the system has not taken
	Buffered  int       // bytes of input that are not a whole frame or message yet, or wait
	Paused    bool      // it is not read: PauseRead, backpressure, or others come first
	Closing   bool

	// IdleDeadline is when the connection will be evicted if nothing is received until then; zero:
	// never.
	IdleDeadline time.Time
}

// A SlowTurn is a time for which a loop was busy at a stretch, without a look at its sockets.
type SlowTurn struct {
	Began time.Time
	Took  time.Duration

	// Conn is the ID of the connection whose code ran last in it, and Handler the type of its
	// Handler. 0 and "" stand for the loop's own timers and posts.
	Conn    uint64
	Handler string

	// Work is the kind of callback that ran last in it: accept, message, datagram, post, tell,
	// timer, idle (which the framework's own timers of a connection are, too), offload result,
	// flushed, close, or hook. none: there was none.
	Work string
}
