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

	NumCloseReasons = iota // how many there are
)

// String returns the reason's name in metrics, such as "slow_consumer".
func (r CloseReason) String() string {
	names := [NumCloseReasons]string{
		"handler", "peer", "idle", "slow_consumer", "slow_frame", "drain", "panic", "input", "network", "other",
	}
	if int(r) < len(names) {
		return names[r]
	}
	return "unknown"
}

// reasonFor looks at an error, once, when the close begins. Its methods are user code: they may
// panic, as those of a typed nil do.
func (c *Conn) reasonFor(err error) (r CloseReason) {
	switch err {
	case nil, ErrDetached:
		return ClosedByHandler
	case io.EOF:
		return ClosedByPeer
	case ErrIdle:
		return ClosedByIdle
	case ErrServerClosed:
		return ClosedByDrain
	}
	r = ClosedByOther
	_ = c.loop.Try(func() { r = classify(err) })
	return r
}

// classify may panic.
func classify(err error) CloseReason {
	var panicked *PanicError
	var system *os.SyscallError
	var network net.Error
	switch {
	case errors.As(err, &panicked):
		return ClosedByPanic
	case errors.Is(err, ErrIdle):
		return ClosedByIdle
	case errors.Is(err, ErrSlowConsumer):
		return ClosedBySlowConsumer
	case errors.Is(err, ErrSlowFrame):
		return ClosedBySlowFrame
	case errors.Is(err, ErrServerClosed):
		return ClosedByDrain
	case errors.Is(err, io.EOF):
		return ClosedByPeer
	case errors.Is(err, codec.ErrTooLong), errors.Is(err, codec.ErrMalformed):
		return ClosedByInput
	case errors.As(err, &system), errors.As(err, &network):
		return ClosedByNetwork
	}
	return ClosedByOther
}
