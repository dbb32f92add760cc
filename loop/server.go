package loop

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/rs/zerolog"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/loop/internal/engine"
	"github.com/loopwheel/loopwheel/loop/internal/jobs"
	"github.com/loopwheel/loopwheel/loop/internal/limits"
	"github.com/loopwheel/loopwheel/loop/internal/meter"
	"github.com/loopwheel/loopwheel/loop/internal/testhook"
	"github.com/loopwheel/loopwheel/loop/internal/tlsconn"
)

// A Server accepts connections and runs them on its loops. Set the fields, then call Run, or Start
// and Wait; the fields must not be changed after that. A Server runs once.
//
// The zero of each field is useful; its comment says what it means. A negative value is an error of
// Start.
type Server struct {
	// Addr is where to listen: "tcp://host:port" (tcp4 and tcp6, too; port 0 takes a free one, see
	// LocalAddr), "unix://path", or "udp://host:port" (udp4 and udp6, too). A unix socket that a
	// dead process left behind is replaced.
	//
	// At a UDP address each peer address has a session, which is a Conn. Accept is called for its
	// first datagram. A datagram is a message, without a Codec, and Send sends one. IdleTimeout
	// (2 minutes if that is 0) ends the session. While reading is paused its datagrams are lost, as
	// are those that the system does not take (see Stats.Lost). A name that has addresses of IPv4
	// and IPv6 is served at one of each.
	Addr string

	// Accept is called on the loop of each new connection and returns its Handler. It may use c at
	// once: greet, set timers and hooks, change the codec. nil refuses the connection, and so does
	// a panic; OnClose is not called then.
	Accept Accept

	// Codec frames the messages. nil means codec.Raw: each piece of input as it comes. A Codec that
	// only UDP addresses could use is an error.
	Codec codec.Codec

	// Listeners are more addresses, served by the same loops. With them Addr may be empty; then
	// Accept, Codec, IdleTimeout and TCP are the defaults of the Listeners, and nothing else.
	Listeners []Listener

	// AcceptFrom is what to accept from in place of Addr, which is empty then: a listener from
	// systemd, from a test. It must accept connections of package net as they are: TCP or unix. The
	// server closes it, and its sockets do not linger (SO_LINGER).
	AcceptFrom net.Listener

	// TLS makes Addr speak TLS. nil means plain. It may not be changed after Start,
	// but its hooks (GetCertificate, GetConfigForClient) may answer differently each time. They run
	// beside the loops, as many as GOMAXPROCS at a time. One that asks somebody else keeps its
	// place for a fifth of a second at most, as long as no more than MaxHandshakes of them last. A
	// panic in a hook fails the handshake.
	//
	// Accept is called after the handshake. An end without close_notify is io.ErrUnexpectedEOF.
	TLS *tls.Config

	// CryptoTLS has crypto/tls keep all connections of TLS after their handshakes, those of Dialers
	// and of Conn.StartTLS, too. Otherwise the loops go on with TLS 1.3 themselves, for a third of
	// the memory, but in FIPS 140-3 mode, and for clients with a ClientSessionCache.
	CryptoTLS bool

	// Timeouts.Handshake is how long a connection may take until it is open: the header of the
	// PROXY protocol and the TLS handshake together. It is also for Conn.StartTLS. 0 means 10
	// seconds.
	HandshakeTimeout time.Duration

	// MaxHandshakes is how many handshakes may wait for their clients once they have begun, where
	// each takes 36 KB. For one more, the one that has waited longest is cut. 0 means 1,024.
	MaxHandshakes int

	// ProxyProtocol lists the networks whose connections to Addr begin with a header of the PROXY
	// protocol (HAProxy's send-proxy and send-proxy-v2, nginx's proxy_protocol): RemoteAddr and
	// LocalAddr are what it says, and MaxConnsPerIP counts the client. Such a header is expected of
	// them, and of unix sockets, and closes the connections of all others. nil: nobody sends one.
	ProxyProtocol []netip.Prefix

	// MaxProxyHeader is how many bytes such a header may have, with the notes of Conn.ProxyTLVs.
	// 0 means 65,551, which the protocol allows.
	MaxProxyHeader int

	// TCP has the options of Addr's sockets.
	TCP TCPOptions

	// Control is called by Start with each socket of Addr, if that is a UDP address, before it is
	// bound, as that of net.ListenConfig is. On Linux there is a socket for each loop, and the
	// first one gets broadcasts and multicasts. IP_RECVERR is taken off again, as it would have
	// epoll report an error for ever. TCP.Control is for other addresses.
	Control func(network, address string, c syscall.RawConn) error

	// IdleTimeout evicts a connection, with ErrIdle, this long after the last byte that it sent us.
	// Output that it takes does not count, unless IdleCountsOutput is set. Where an eviction cuts
	// something off, the peer of a TCP connection reads a reset after what was sent, and not an
	// end: because output waits, jobs run, SetBusy says so, or the last output is younger than a
	// quarter of its silence. Output of an idle hook at the same time does not count. 0 means
	// never.
	IdleTimeout time.Duration

	// IdleCountsOutput has output that the peer takes count for idle timeouts as a byte that it
	// sends does. Where the system does not tell what the peer has taken, what the socket takes
	// counts. An eviction may come later then, by the timeout at most.
	IdleCountsOutput bool

	// IdleJitter adds to each connection's idle timeout a random time below this, so that clients
	// that connected together are not evicted together. 0 means none.
	IdleJitter time.Duration

	// OnStart is called as the first thing on each loop, before the server takes any connection. A
	// panic makes Start fail.
	OnStart func(l *Loop)

	// OnStop is called as the last thing on each loop whose OnStart has returned.
	OnStop func(l *Loop)

	// Strict makes each call on the wrong goroutine (Conn.Send from one of yours, say) panic there,
	// as it does in builds with the race detector. It is for tests: a call costs a microsecond.
	Strict bool

	// Poison finds bytes that are used after they were lent: OnMessage gets a copy of each message,
	// which is overwritten with "LENT NO LONGER. " when it returns. It costs two copies of each
	// message. Builds with the race detector do it always, and so does looptest.
	Poison bool

	// NumLoops is the number of loops. 0 means GOMAXPROCS less one, and at least one: that leaves a
	// P to other goroutines, such as those of Offload and of clients of databases. A program whose
	// goroutines can wait for up to 10 ms at a time takes all by runtime.GOMAXPROCS(0).
	NumLoops int

	// Engine is what moves the bytes. The zero Engine is the system's default.
	Engine Engine

	// Logger gets what the server has to say: panics and failures as errors, refusals as warnings.
	// The zero Logger writes errors to os.Stderr, and nothing else. zerolog.Nop() is silent.
	Logger zerolog.Logger

	// MaxSessions is how many UDP sessions may be open at once; datagrams of further peers are
	// dropped. From a sixteenth of that on, new peers have a sixteenth of the time of each loop, so
	// that a flood leaves the rest to those who have a session. Peers that prove their address (see
	// Conn.LimitReplies) do not count. Without such proofs, take 16 times the usual sessions. 0
	// means 131,072.
	MaxSessions int

	// MaxConns is how many connections may be open at once; one more is refused. 0 takes it from
	// the limit of open files, leaves some for the program's own, and is a million at most, and so
	// many that they take a quarter of the memory (see MaxBuffered, but all of the machine's) at 5
	// KiB each. Start logs a warning if the memory is too small for MaxConns and MaxBuffered.
	MaxConns int

	// MaxConnsPerIP is how many of them may come from one IP address, or of IPv6 from one network:
	// see IPv6Prefix. 0 means no limit.
	MaxConnsPerIP int

	// IPv6Prefix is how many bits of an IPv6 address MaxConnsPerIP looks at, 128 at most. 0 means
	// 64.
	IPv6Prefix int

	// AcceptRate is how many connections are accepted per second, a tenth of that at once; others
	// wait in the system's queue. 0 means no limit.
	AcceptRate int

	// Farewell is sent to a connection that is refused because of a limit, in place of a reset: in
	// wire form, and short. The peer's end is waited for then, for a second at most and of 64 peers
	// at a time; others are reset. So are those of a TLS address.
	Farewell []byte

	// Timeouts.FirstByte evicts a connection, with ErrIdle, that has not sent one byte this long
	// after it was opened. 0 means IdleTimeout.
	FirstByteTimeout time.Duration

	// Timeouts.Frame closes a connection, with ErrSlowFrame, that has begun a frame and not
	// finished it after this long. Where the codec takes a message in several frames
	// (codec.Assembler), it is the time of the whole message. The time stands still while the
	// connection is not read: because of PauseRead, or of output that the peer does not take. 0
	// means no limit.
	FrameTimeout time.Duration

	// MaxFrame is how many bytes of one frame that has not ended may wait in a connection. One more
	// closes the connection with codec.ErrTooLong. A codec with a limit of its own (codec.Sizer,
	// which all of package codec and websocket are) has that in place of this. 0 means 16 MiB.
	MaxFrame int

	// MaxOutbound is how many bytes of output may wait in one connection before Send fails with
	// ErrSlowConsumer. 0 means 1 MiB.
	MaxOutbound int

	// HoldBackAt is how many bytes of output may wait in one connection while its input is decoded.
	// Beyond that none is until half has gone: a peer that asks faster than it reads is held back
	// by TCP. MaxOutbound is for what is pushed, by timers, Tells and groups. It must be less than
	// MaxOutbound. 0 means 256 KiB, or a quarter of MaxOutbound if that is less.
	HoldBackAt int

	// MaxBuffered is how many bytes the buffers of all connections may take together, with those
	// that the loops keep for their next use: of output, of input that is held back, of frames that
	// have not ended, and what the mailboxes take for their queues. From half of it on, HoldBackAt
	// is a quarter of itself and input is read in small pieces, from three quarters on a sixteenth.
	// Above it the connections that have the largest buffers are closed, with ErrMaxBuffered, on
	// the loops that have more than their part, until an eighth is free. What the kernel has, and
	// the program, does not count. 0 means an eighth of the memory that the process may use: what
	// its cgroup and GOMEMLIMIT allow, or a quarter of the machine's.
	MaxBuffered int

	// MaxMailbox is how many functions may wait for one loop before their senders are slowed:
	// TryPost and TryTell fail with ErrMailboxFull, TellWait waits, and a connection whose
	// callbacks add more is not read until half of them have run. Post and Tell never fail because
	// of it. A mailbox that stays above it is logged once a minute, with the code that adds most. 0
	// means 65,536.
	MaxMailbox int

	// Timeouts.Close is how long the peer of a closing connection may take none of its output. Each
	// byte that the peer's system acknowledges (Linux, TCP), or ours takes (elsewhere), begins the
	// time anew. Then the rest is lost: see ErrOutputLost. 0 means 5 seconds.
	CloseTimeout time.Duration

	// Timeouts.MaxClose is how long a close may take in all, however slowly the peer takes the
	// output. In the drain Drain.Timeout limits all closes together. 0 means no limit.
	MaxCloseTime time.Duration

	// Drain.Timeout is how long the connections may take to close when the server ends, before they
	// are cut. 0 means 30 seconds.
	DrainTimeout time.Duration

	// Drain.Window spreads the closes of the drain over this time, in random order, so that clients
	// do not all reconnect at once; until its turn comes a connection is served. It must be shorter
	// than Drain.Timeout. 0 means at once.
	DrainWindow time.Duration

	// OnClosing is called on c's loop for each connection that this side closes, before its output
	// is flushed: the place for a last word. err is what OnClose will get. Send and Write work here
	// (above MaxOutbound they take nothing). It is not called if the peer could not hear it:
	// because it closed, or its connection failed, or it does not take its output.
	OnClosing func(c *Conn, err error)

	// OnDrain is called for each connection when its turn to be closed by the drain has come, on
	// its loop: to say goodbye. Its output is flushed before the close.
	OnDrain func(c *Conn)

	// Drain.Delay is how long connections are served on when the server ends, before the drain
	// begins, and Drain.Timeout with it: for balancers that need time to notice. Without
	// Drain.KeepAccepting the listeners close at once, UDP addresses open no new sessions, and the
	// delay is over when nobody is left. Draining is true from its beginning on. 0 means none.
	DrainDelay time.Duration

	// Drain.KeepAccepting has the listeners accept for as long as Drain.Delay: for balancers that
	// learn from a health check (see Draining) that no more should come. A process that is replaced
	// by another one on the same sockets does not want that.
	DrainAccept bool

	// MaxOffload is how many jobs that were given to Offload run at the same time, each on a
	// goroutine. 16,384 more may wait. 0 means 256.
	MaxOffload int

	// BlockedAfter is how long a turn of a loop (usually one callback) may take before that is
	// logged as a warning, with the stack of the callback, and counted in Stats.Blocked. Time in
	// which the process itself was stopped does not count. 0 means 100 ms.
	BlockedAfter time.Duration

	listeners   []*listener
	hasMain     bool    // the first of them is Addr's
	inherited   []Bound // by Mover
	base        time.Time
	engine      engine.Engine
	loops       []*Loop
	watchdog    *meter.Watchdog
	jobs        jobs.Pool
	handshakers *tlsconn.Workers
	stage       atomic.Int32 // as below

	accepted, refused, probes atomic.Uint64
	lastID                    atomic.Uint64
	open                      atomic.Int64 // connections, those on their way to a loop included
	sessions                  atomic.Int64 // of UDP
	gate                      *limits.Gate
	refusals, badInput        limits.LogRate
	panics                    limits.LogRates
	lingerers                 chan struct{} // a value for each socket that lingers and never was a connection
	budget                    budget
	slots                     int64 // how many connections may be on their way to one loop

	cancel         func()         // ends the server
	draining       chan struct{}  // closed when nothing is accepted any more
	stopsAccepting sync.Once      // does that
	listening      atomic.Int32   // listeners that accept
	dials          atomic.Int32   // goroutines that dial
	failed         chan error     // why the engine ended unasked
	done           chan struct{}  // closed when Wait may return
	err            error          // what it returns
	newcomers      sync.WaitGroup // what accepts, and what is on its way to a loop
}

// The stages of a Server, each of which includes those before it.
const (
	stageStarting int32 = iota + 1 // Start was called
	stageLooping                   // loops may be used
	stageServing                   // Start has succeeded
	stageLeaving                   // Drain.Delay, or the drain, has begun
)

func (s *Server) has(stage int32) bool { return s.stage.Load() >= stage }

// A Listener is one more address of a Server.
type Listener struct {
	Addr        string        // as Server.Addr
	Codec       codec.Codec   // nil means Server.Codec
	Accept      Accept        // nil means Server.Accept
	IdleTimeout time.Duration // 0 means Server.IdleTimeout

	AcceptFrom    net.Listener   // as Server.AcceptFrom
	TLS           *tls.Config    // nil means plain
	ProxyProtocol []netip.Prefix // nil means that nobody sends headers
	TCP           TCPOptions     // the zero TCPOptions means Server.TCP

	// MaxConns is how many connections, or sessions of UDP, this address may have at once, within
	// the limits of the Server: a crowd at one port leaves room at another, such as an
	// administrator's. 0 means no limit of its own.
	MaxConns int

	Control func(network, address string, c syscall.RawConn) error // as Server.UDP.Control; nil: nothing is to be set
}

// Run is Start and Wait.
func (s *Server) Run(ctx context.Context) error {
	if err := s.Start(ctx); err != nil {
		return err
	}
	return s.Wait()
}

// Start checks the fields, opens the listeners and brings up the loops; all of that is done when it
// returns nil. The server then runs until ctx is done. An error names the field that is wrong, and
// leaves nothing behind. Start may be called once.
func (s *Server) Start(ctx context.Context) error {
	if ctx == nil {
		return errors.New("loop: Server.Start with a nil context")
	}
	if !s.stage.CompareAndSwap(0, stageStarting) {
		return errors.New("loop: Server.Start was called before: a Server runs once")
	}
	if err := s.prepare(); err != nil {
		return err
	}
	s.base = time.Now()
	s.jobs.Init(s.Limits.MaxOffload, maxWaitingJobs)
	s.failed = make(chan error, 1)
	s.done = make(chan struct{})
	s.draining = make(chan struct{})
	if s.engine = testhook.EngineOf(ctx); s.engine == nil {
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
	s.stage.Store(stageServing)
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

// Wait waits until ctx is done and the drain is over. nil: nothing was cut. *DrainError:
// connections were. Another error says why the engine ended without being asked, or which loops
// were left behind, as a callback did not return or what was posted there takes too long. Any
// number of goroutines may call it, after Start.
//
// A peer that does not close its end after we have closed ours is waited for, for a second at most.
func (s *Server) Wait() error {
	if !s.has(stageServing) {
		return errors.New("loop: Server.Wait needs a Server that was started")
	}
	if s.onLoop() {
		return errors.New("loop: Server.Wait was called on a loop, which would wait for itself: call it on a goroutine")
	}
	<-s.done
	return s.err
}

// LocalAddr returns the address that Addr became, with the real port, or nil before Start and
// without an Addr.
func (s *Server) LocalAddr() net.Addr {
	if !s.has(stageServing) || !s.hasMain {
		return nil
	}
	return s.listeners[0].addr()
}

// Addrs returns the addresses of all listeners, Addr's first, then those of Listeners in their
// order; nil before Start.
func (s *Server) Addrs() []net.Addr {
	if !s.has(stageServing) {
		return nil
	}
	var addrs []net.Addr
	for _, ln := range s.listeners {
		addrs = append(addrs, ln.addr())
	}
	return addrs
}

// Loops returns the loops, after Start, and in OnStart. Each call returns a new slice.
func (s *Server) Loops() []*Loop {
	if !s.has(stageLooping) {
		return nil
	}
	return slices.Clone(s.loops)
}
