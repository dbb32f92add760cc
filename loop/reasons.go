package loop

import (
	"errors"
	"io"
	"net"
	"os"

	"github.com/loopwheel/loopwheel/codec"
)

// A CloseReason says what ended a connection, as far as it matters for counting. Handler.OnClose
// gets the error itself.
type CloseReason uint8

// The reasons why connections end.
const (
	ClosedByHandler      CloseReason = iota // Conn.Close, Conn.Detach
	ClosedByPeer                            // io.EOF
	ClosedByIdle                            // ErrIdle
	ClosedBySlowConsumer                    // ErrSlowConsumer
	ClosedBySlowFrame                       // ErrSlowFrame
	ClosedByDrain                           // ErrServerClosed
	ClosedByPanic                           // *PanicError
	ClosedByInput                           // what the codec, or OnMessage, found wrong with what the peer sent
	ClosedByNetwork                         // an error of the system
	ClosedByOther                           // any other error that CloseWithError was given
	ClosedByOverload                        // ErrOffloadFull or ErrMailboxFull: this side has too much to do
	ClosedByMemory                          // ErrMaxBuffered

	NumCloseReasons = iota // how many there are
)

// String returns the reason's name in metrics, such as "slow_consumer".
func (r CloseReason) String() string {
	names := [NumCloseReasons]string{
		"handler", "peer", "idle", "slow_consumer", "slow_frame", "drain", "panic", "input", "network", "other", "overload", "memory",
	}
	if int(r) < len(names) {
		return names[r]
	}
	return "unknown"
}

// reasonFor looks at an error, once, when the close begins. Its methods are user code: they may
// panic, as those of a typed nil do.
func (c *Conn) reasonFor(err error) CloseReason {
	r := ClosedByHandler
	if err != nil {
		r = ClosedByOther
		_ = c.loop.guard(func() { r = classify(err) })
	}
	return r
}

// reasonOf has the errors that say what ended a connection.
var reasonOf = []struct {
	err    error
	reason CloseReason
}{
	{io.EOF, ClosedByPeer},
	{ErrIdle, ClosedByIdle},
	{ErrServerClosed, ClosedByDrain},
	{ErrSlowConsumer, ClosedBySlowConsumer},
	{ErrSlowFrame, ClosedBySlowFrame},
	{ErrDetached, ClosedByHandler},
	{ErrNetConn, ClosedByHandler},
	{ErrOffloadFull, ClosedByOverload},
	{ErrMailboxFull, ClosedByOverload},
	{ErrMaxBuffered, ClosedByMemory},
	{codec.ErrTooLong, ClosedByInput},
	{codec.ErrMalformed, ClosedByInput},
}

// classify may panic.
func classify(err error) CloseReason {
	var panicked *PanicError
	if errors.As(err, &panicked) {
		return ClosedByPanic
	}
	for _, known := range reasonOf {
		if errors.Is(err, known.err) {
			return known.reason
		}
	}
	var system *os.SyscallError
	var network net.Error
	if errors.As(err, &system) || errors.As(err, &network) {
		return ClosedByNetwork
	}
	return ClosedByOther
}
