package loop

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/loop/internal/engine"
	"github.com/loopwheel/loopwheel/loop/internal/jobs"
	"github.com/loopwheel/loopwheel/loop/internal/mailbox"
)

// Reasons for which a connection closes, or a call is refused. Test for them with errors.Is.
var (
	// ErrClosed means that the connection is closed or closing, or that CloseWrite was called.
	ErrClosed = errors.New("loop: connection closed")

	// ErrOutputLost means that the peer did not take all output sent before the close:
	// Timeouts.Close or MaxClose passed, the drain ended, or the peer disconnected. OnClose gets it
	// in addition to the reason.
	ErrOutputLost = errors.New("loop: output lost: the peer did not take it")

	// ErrUnfinished means that the drain ended, by Drain.Timeout or Server.Close, while the
	// connection was busy (SetBusy), or had jobs of Offload, replies or calls pending. OnClose gets
	// it in addition to ErrServerClosed. The peer of a TCP connection gets a reset after the output.
	ErrUnfinished = errors.New("loop: unfinished when the drain ended")

	// ErrIdle means that the peer sent nothing for the idle timeout, or no byte within
	// Server.Timeouts.FirstByte.
	ErrIdle = errors.New("loop: idle timeout")

	// ErrDetached is the reason that OnClose gets after Conn.Detach or Conn.NetConn.
	ErrDetached = errors.New("loop: connection detached")

	// ErrUnflushed means that Conn.Detach cannot proceed because the socket does not accept all
	// pending output yet.
	ErrUnflushed = engine.ErrUnflushed

	// ErrSlowFrame means that the peer began a frame, or a message of several frames, and did not
	// complete it within Server.Timeouts.Frame.
	ErrSlowFrame = errors.New("loop: frame timeout")

	// ErrSlowConsumer means that the peer does not read its output fast enough:
	// Server.Limits.MaxOutbound bytes are pending.
	ErrSlowConsumer = errors.New("loop: slow consumer: outbound limit reached")

	// ErrMaxBuffered means that the buffers of all connections took Server.Limits.MaxBuffered
	// bytes, and those of this connection were among the largest.
	ErrMaxBuffered = errors.New("loop: buffers took Server.Limits.MaxBuffered, and this connection had a large one")

	// ErrDatagramTooLong means that a UDP datagram is longer than its protocol, or the path to the
	// peer, allows.
	ErrDatagramTooLong = errors.New("loop: datagram too long")

	// ErrAmplification means that Conn.LimitReplies permits no more output until the peer sends
	// something.
	ErrAmplification = errors.New("loop: more output than the peer's unproved address allows")

	// ErrMailboxFull means that Server.Limits.MaxMailbox functions are queued for the loop, so that
	// TryTell, TryPost, or a broadcast has not queued another.
	ErrMailboxFull = mailbox.ErrFull

	// ErrOffloadFull means that 16,384 jobs of the server are queued, or 1,024 of this connection,
	// or as many of this connection as the server has places left.
	ErrOffloadFull = jobs.ErrFull

	// ErrServerClosed means that the server is draining or has ended.
	ErrServerClosed = mailbox.ErrClosed

	// ErrHandshakeTimeout means that the TLS handshake or the PROXY protocol header was not
	// complete within Server.Timeouts.Handshake. It is logged, because there is no handler yet.
	// After Conn.StartTLS, OnClose gets it.
	ErrHandshakeTimeout = errors.New("loop: handshake timeout")

	// ErrTooManyConns means that a limit on connections is reached: Server.Limits.MaxConns,
	// MaxConnsPerIP or MaxSessions, or Listener.MaxConns. Server.Adopt returns it, and a Dialer's
	// open function gets it. Otherwise it is logged, and the peer gets a reset, or
	// Server.Limits.Refusal.
	ErrTooManyConns = errors.New("loop: too many connections")
)

var (
	errSpeaksTLS = errors.New("loop: Conn.StartTLS: the connection speaks TLS already, or is about to")
	errInputLost = errors.New("loop: the peer has closed, and no descriptor was left to keep its input until ResumeRead")
	errNotKept   = errors.New("loop: the peer has ended its output, and no descriptor was left to send ours by")
	errGoexited  = errors.New("loop: a callback called runtime.Goexit (t.Fatal, t.FailNow?), which ended its event loop")
)

// A lossError is the reason of a connection that closed and has lost output, or why it has. Either
// may be an error of the user's, whose methods are not called before somebody asks.
type lossError struct{ reason, lost error }

func (e *lossError) Error() string   { return fmt.Sprintf("%v; %v", e.reason, e.lost) }
func (e *lossError) Unwrap() []error { return []error{e.reason, e.lost} }

// noteOutputLost notes that output of a connection that closes was lost, and counts that.
func (c *Conn) noteOutputLost(why error) {
	end := &c.extras.ending
	switch end.outputLost {
	case nil:
		c.loop.count.add(numCut, 1)
	case ErrUnfinished: // counted already
		why = ErrUnfinished
	default:
		return
	}
	if end.outputLost = ErrOutputLost; why != nil {
		end.outputLost = &lossError{ErrOutputLost, why}
	}
}

// A PanicError is the reason for the close of a connection whose code panicked.
type PanicError struct {
	Value any    // the argument of panic
	Stack []byte // the stack of the goroutine, as debug.Stack formats it
}

// Error implements error.
func (e *PanicError) Error() string { return fmt.Sprintf("loop: panic: %v", e.Value) }

// Unwrap returns the argument of panic if that was an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// A DrainError reports that connections were cut during the drain.
type DrainError struct {
	Cut int // connections that were cut: see Stats.Cut
}

// Error implements error.
func (e *DrainError) Error() string {
	return fmt.Sprintf("loop: drain cut %d connection(s): output not taken within Server.Timeouts.Close, or not done within Drain.Timeout", e.Cut)
}

// A closeReason says what ended a connection, as far as it matters for Stats.ClosedBy.
type closeReason uint8

// The reasons why connections end.
const (
	closedByHandler      closeReason = iota // Conn.Close, Conn.Detach, what Send refuses
	closedByPeer                            // io.EOF
	closedByIdle                            // ErrIdle
	closedBySlowConsumer                    // ErrSlowConsumer
	closedBySlowFrame                       // ErrSlowFrame
	closedByDrain                           // ErrServerClosed
	closedByPanic                           // *PanicError
	closedByInput                           // what the codec, or OnMessage, found wrong with what the peer sent
	closedByNetwork                         // an error of the system
	closedByOther                           // any other error that CloseWithError was given
	closedByOverload                        // ErrOffloadFull or ErrMailboxFull: this side has too much to do
	closedByMemory                          // ErrMaxBuffered
	closedByMove                            // it is with another process

	numCloseReasons = iota
)

// closeReasons are their names in Stats.ClosedBy.
var closeReasons = [numCloseReasons]string{
	"handler", "peer", "idle", "slow_consumer", "slow_frame", "drain", "panic", "input", "network", "other", "overload", "memory", "moved",
}

// reasonFor looks at an error, once, when the close begins. Its methods are user code: they may
// panic, as those of a typed nil do.
func (c *Conn) reasonFor(err error) closeReason {
	r := closedByHandler
	if err != nil {
		r = closedByOther
		_ = c.loop.guard(func() { r = classify(err) })
	}
	return r
}

// reasonOf has the errors that say what ended a connection.
var reasonOf = []struct {
	err    error
	reason closeReason
}{
	{io.EOF, closedByPeer},
	{ErrIdle, closedByIdle},
	{ErrServerClosed, closedByDrain},
	{ErrSlowConsumer, closedBySlowConsumer},
	{ErrSlowFrame, closedBySlowFrame},
	{ErrDetached, closedByHandler},
	{ErrClosed, closedByHandler},
	{codec.ErrClosed, closedByHandler},
	{ErrDatagramTooLong, closedByHandler},
	{ErrAmplification, closedByHandler},
	{ErrOffloadFull, closedByOverload},
	{ErrMailboxFull, closedByOverload},
	{ErrMaxBuffered, closedByMemory},
	{codec.ErrTooLong, closedByInput},
	{codec.ErrMalformed, closedByInput},
}

// classify may panic.
func classify(err error) closeReason {
	var panicked *PanicError
	if errors.As(err, &panicked) {
		return closedByPanic
	}
	for _, known := range reasonOf {
		if errors.Is(err, known.err) {
			return known.reason
		}
	}
	var system *os.SyscallError
	var network net.Error
	if errors.As(err, &system) || errors.As(err, &network) {
		return closedByNetwork
	}
	return closedByOther
}
