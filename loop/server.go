package loop

import (
	"context"
	"crypto/tls"
	"errors"
	"iter"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/internal/inside"
	"github.com/loopwheel/loopwheel/loop/internal/engine"
	"github.com/loopwheel/loopwheel/loop/internal/jobs"
	"github.com/loopwheel/loopwheel/loop/internal/journal"
	"github.com/loopwheel/loopwheel/loop/internal/limits"
	"github.com/loopwheel/loopwheel/loop/internal/meter"
	"github.com/loopwheel/loopwheel/loop/internal/testhook"
	"github.com/loopwheel/loopwheel/loop/internal/tlsconn"
)

// A Server accepts connections and runs them on its loops. Set the fields, then call Run, or Start
// and Wait. The fields must not be changed after that, and the Server must not be copied. A Server
// runs only once.
//
// The zero value of each field but Accept is usable; the field's comment says what it means. A
// negative value makes Start fail.
type Server struct {
	// Addr is where to listen: "tcp://host:port" (also tcp4 and tcp6; port 0 takes a free one, see
	// LocalAddr), "unix://path", or "udp://host:port" (also udp4 and udp6). A unix socket left
	// behind by a dead process is replaced. "name://tunnel" is not listened on: it names
	// connections from Listener.AcceptFrom or Adopt. In a handover (package handover) these move to
	// the listener of the same name in the next process; connections without a name stay with their
	// process.
	//
	// At a UDP address each peer address has a session, which is a Conn. Accept is called for its
	// first datagram. Each datagram is a message, without a Codec, and Send sends one. IdleTimeout
	// (2 minutes if it is 0) ends the session. While reading is paused its datagrams are lost, as
	// are sent ones that the system does not accept (see Stats.Lost). A host name with IPv4 and
	// IPv6 addresses is served on one of each.
	Addr string

	// Accept is called on the loop of each new connection and returns its Handler. It may use c at
	// once: send a greeting, set timers and hooks, change the codec. A nil Handler refuses the
	// connection, and so does a panic; OnClose is then not called. Only a Server without Addr, each
	// of whose Listeners has an Accept, may leave the field nil.
	Accept Accept

	// Codec frames the messages. nil means codec.Raw: messages are pieces of input as they arrive.
	// A Codec that only UDP addresses would use is an error.
	Codec codec.Codec

	// Listeners are additional addresses, served by the same loops. With them Addr may be empty;
	// then Accept, Codec, IdleTimeout and TCP are only the defaults of the Listeners.
	Listeners []Listener

	// TLS makes Addr speak TLS. nil means plain. It must not be changed after Start, but its hooks
	// (GetCertificate, GetConfigForClient) may return something different each time. They run on
	// other goroutines, GOMAXPROCS at a time. A hook that waits gives up its place after a fifth of
	// a second, as long as at most Limits.MaxHandshakes of them run. A panic in a hook fails the
	// handshake.
	//
	// Accept is called after the handshake. An end without close_notify is io.ErrUnexpectedEOF.
	TLS *tls.Config

	// ProxyProtocol lists the networks whose connections to Addr begin with a PROXY protocol header
	// (HAProxy's send-proxy and send-proxy-v2, nginx's proxy_protocol): RemoteAddr and LocalAddr
	// then return the addresses in the header, and MaxConnsPerIP counts the client's. The header is
	// required from these networks and from unix sockets; from any other peer it closes the
	// connection. nil means that no peer sends one.
	ProxyProtocol []netip.Prefix

	// IdleTimeout evicts a connection, with ErrIdle, this long after the last byte from the peer.
	// Output that the peer accepts does not count, unless Timeouts.IdleCountsOutput is set. If an
	// eviction interrupts something, the peer of a TCP connection reads a reset after what was
	// sent, not a normal end. An eviction interrupts something if output, jobs, replies or calls
	// are pending, if SetBusy is set, or if the last output is more recent than a quarter of the
	// idle time. Output of an idle hook at the same moment does not count. 0 means never, or 2
	// minutes at a UDP address.
	IdleTimeout time.Duration

	// OnStart is called as the first function on each loop, before the server accepts connections.
	// A panic makes Start fail.
	OnStart func(l *Loop)

	// OnStop is called as the last function on each loop whose OnStart has returned. A panic in it
	// is logged and counted.
	OnStop func(l *Loop)

	// NumLoops is the number of loops. 0 means GOMAXPROCS minus one, and at least one, which leaves
	// a P to other goroutines, such as those of Offload and of database clients. If these may wait
	// for up to 10 ms at a time, runtime.GOMAXPROCS(0) uses all processors.
	NumLoops int

	// Engine moves the bytes. The zero Engine is the system's default.
	Engine Engine

	// Logger gets the server's log lines: panics and failures as errors, refusals as warnings. The
	// zero Logger writes only errors, to os.Stderr. zerolog.Nop() is silent.
	Logger zerolog.Logger

	Limits   Limits
	Timeouts Timeouts
	Drain    Drain
	Hooks    Hooks
	TCP      TCPOptions // of Addr's sockets
	UDP      UDPOptions // of the sockets of all UDP addresses
	Debug    Debug

	listeners   []*listener
	inTest      bool           // of looptest
	inherited   []inside.Bound // for a handover
	parked      parkedDials
	acceptGate  acceptGate
	base        time.Time
	engine      engine.Engine
	loops       []*Loop
	watchdog    *meter.Watchdog
	journal     journal.Journal // of the end, which waits for no log
	jobs        jobs.Pool
	handshakers *tlsconn.Workers
	phase       atomic.Int32 // as below
	noHops      atomic.Bool  // no connection leaves its loop any more: the server drains
	hopsWait    atomic.Bool  // nor does one at present, in a handover

	accepted, refused, probes atomic.Uint64
	lastID                    atomic.Uint64
	numOpen                   atomic.Int64 // connections, those on their way to a loop included
	sessions                  atomic.Int64 // of UDP
	limiter                   *limits.Limiter
	warnings                  limits.LogRates // by message: those that peers can cause
	panics                    limits.LogRates // by what was panicked
	lingerers                 chan struct{}   // a value for each socket that lingers and never was a connection
	budget                    budget
	maxInTransit              int64 // how many connections may be in transit to one loop

	cancel         func() // ends the server
	hurry          context.Context
	hurryUp        func()         // Close: ends hurry
	notAccepting   chan struct{}  // closed when nothing is accepted any more
	stopsAccepting sync.Once      // does that
	listening      atomic.Int32   // listeners that accept
	dials          atomic.Int32   // goroutines that dial
	failed         chan error     // why the engine ended unasked
	done           chan struct{}  // closed when Wait may return
	err            error          // what it returns
	newcomers      sync.WaitGroup // what accepts, and what is on its way to a loop
}

// The phases of a Server, each of which includes those before it.
const (
	phaseStarting int32 = iota + 1 // Start was called
	phaseLooping                   // loops may be used
	phaseServing                   // Start has succeeded
	phaseEnding                    // Drain.Delay, or the drain, has begun
)

func (s *Server) has(phase int32) bool { return s.phase.Load() >= phase }

// Run calls Start, then Wait.
func (s *Server) Run(ctx context.Context) error {
	if err := s.Start(ctx); err != nil {
		return err
	}
	return s.Wait()
}

// Start checks the fields, opens the listeners and starts the loops; all of that is done when it
// returns nil. The server then runs until ctx is done. After an error nothing that Start has opened
// is left open; a Listener.AcceptFrom may be. An error about a field names it. Start may be called
// once.
func (s *Server) Start(ctx context.Context) error {
	if ctx == nil {
		return errors.New("loop: Server.Start with a nil context")
	}
	if !s.phase.CompareAndSwap(0, phaseStarting) {
		return errors.New("loop: Server.Start was called before: a Server runs once")
	}
	if err := s.prepare(); err != nil {
		return err
	}
	s.base = time.Now()
	s.jobs.Init(s.Limits.MaxOffload, maxWaitingJobs)
	s.failed = make(chan error, 1)
	s.done = make(chan struct{})
	s.notAccepting = make(chan struct{})
	s.hurry, s.hurryUp = context.WithCancel(context.Background())
	s.engine = testhook.EngineOf(ctx)
	if s.inTest = s.engine != nil; !s.inTest {
		var err error
		if s.engine, err = s.newEngine(); err != nil {
			return err
		}
	}
	s.limitConns()
	if err := s.bringUp(ctx); err != nil {
		s.closeListeners()
		s.closePackets()
		return err
	}
	ctx, s.cancel = context.WithCancel(ctx)
	s.phase.Store(phaseServing)
	for _, ln := range s.listeners {
		if ln.net == nil {
			continue
		}
		s.listening.Add(1)
		s.newcomers.Go(func() {
			defer s.listening.Add(-1)
			ln.serve()
		})
	}
	go s.supervise(ctx)
	return nil
}

// Wait waits until the context of Start is done and the drain is over. It returns nil if no
// connection was cut, and a *DrainError if some were. Another error says why the engine ended
// unexpectedly, or which loops were abandoned because a callback did not return or a posted
// function takes too long. Any number of goroutines may call Wait, after Start. On a loop it
// returns an error.
//
// After the server has closed its end of a connection, it waits for the peer to close, for at most
// a second.
func (s *Server) Wait() error {
	if !s.has(phaseServing) {
		return errors.New("loop: Server.Wait needs a Server that was started")
	}
	if s.onLoop() {
		return errors.New("loop: Server.Wait was called on a loop, which would wait for itself: call it on a goroutine")
	}
	<-s.done
	return s.err
}

// LocalAddr returns the first of Addrs, with the actual port. It returns nil before Start, and if
// there is none. Any goroutine may call it.
func (s *Server) LocalAddr() net.Addr {
	if !s.has(phaseServing) || len(s.listeners) == 0 {
		return nil
	}
	return s.listeners[0].addr()
}

// Addrs returns the addresses of all listeners, Addr's first, then those of Listeners in their
// order, nil for one that is a name without AcceptFrom. Before Start it returns nil. Any goroutine
// may call it.
func (s *Server) Addrs() []net.Addr {
	if !s.has(phaseServing) {
		return nil
	}
	var addrs []net.Addr
	for _, ln := range s.listeners {
		addrs = append(addrs, ln.addr())
	}
	return addrs
}

// Conns yields the open connections of all loops, as Refs, loop by loop; a callback on each loop
// lists those that it has at that moment. It waits for each loop, so on a loop it panics: use
// Loop.Conns there. A connection that moves to another loop meanwhile may be yielded twice, or not
// at all. Any other goroutine may call Conns. A loop that has ended has none.
func (s *Server) Conns() iter.Seq[Ref] {
	return func(yield func(Ref) bool) {
		if s.onLoop() {
			panic("loop: Server.Conns on a loop, which must not wait: use Loop.Conns")
		}
		for _, l := range s.Loops() {
			var refs []Ref
			if !l.call(func() {
				for c := range l.Conns() {
					refs = append(refs, c.Ref())
				}
			}) {
				continue
			}
			for _, r := range refs {
				if !yield(r) {
					return
				}
			}
		}
	}
}

// Loops returns the loops, after Start, and in OnStart. Each call returns a new slice. Any
// goroutine may call it.
func (s *Server) Loops() []*Loop {
	if !s.has(phaseLooping) {
		return nil
	}
	return slices.Clone(s.loops)
}
