package codec

import (
	"context"
	"crypto/tls"
	"errors"
	"math"
	"net"
	"time"

	"github.com/loopwheel/loopwheel/internal/length"
)

// DefaultMax is the largest frame, in bytes, that a codec with a zero Max takes.
const DefaultMax = length.DefaultMax

// Errors of codecs. This package wraps them with details; test for them with errors.Is.
var (
	// ErrTooLong: a frame is longer than the codec's Max, or than its length field can express.
	ErrTooLong = length.ErrTooLong

	// ErrMalformed: the bytes cannot be a frame of this codec.
	ErrMalformed = length.ErrMalformed

	// ErrEnd reports an orderly end of the conversation, as the protocol defines it. A codec's own
	// errors may match it by a method Is; a server then does not log them as bad input.
	ErrEnd = errors.New("codec: the protocol's own end")

	// ErrClosed: AppendFrame takes no more frames because the conversation is ending, as after a
	// close frame of WebSocket. The frame itself may be valid on another connection.
	ErrClosed = errors.New("codec: the conversation has ended")

	// ErrConfig: the codec's own fields are invalid. See Validator.
	ErrConfig = length.ErrConfig

	// ErrContract: a codec returned something that Codec forbids, such as more bytes consumed than
	// there were, or a dst without what was in it. It is the codec's bug, not the peer's.
	ErrContract = errors.New("codec: a codec broke its contract")
)

// A Codec finds frames in a stream of bytes, and turns frames into bytes.
//
// The codecs of this package are plain comparable values with no state: one value serves all
// connections and any goroutine. A codec that must remember something between calls implements
// Stateful, and then belongs to one connection and the goroutine of that connection's loop.
type Codec interface {
	// Decode looks for the first whole frame at the start of data, which is never empty when a
	// server calls:
	//
	//	data holds              advance                   frame        err
	//	less than a frame       0                         nil          nil
	//	exactly one frame       len(data)                 the frame    nil
	//	more than one           the length of the first   the first    nil
	//	something to skip       the bytes to skip, > 0    nil          nil
	//	what cannot be a frame  any                       any          why
	//
	// After less than a frame, Decode is called again with the same bytes and more after them;
	// after anything else, with the bytes after the first advance ones. An error is final and
	// closes the connection. It wraps ErrMalformed or ErrTooLong if the peer broke the protocol.
	//
	// A frame may be a slice of data, so it is valid only as long as data is. An empty message is
	// an empty slice that is not nil. Decode does not keep data, and modifies only bytes that it
	// consumes: a codec may unmask or decrypt a frame in place.
	Decode(data []byte) (advance int, frame []byte, err error)

	// AppendFrame appends the wire form of frame to dst and returns the extended slice. It keeps
	// neither slice, and they must not overlap. It refuses what Decode would refuse, what its
	// length field cannot express, and what the peer would not read as this one frame, such as a
	// line with a newline in it; with an error it returns dst at its original length.
	AppendFrame(dst, frame []byte) ([]byte, error)
}

// Stateful is implemented by a codec that has state for each connection: a handshake, a message in
// fragments, a compression window.
type Stateful interface {
	Codec

	// New returns the codec of a new connection. Several goroutines may call it at once.
	New() Codec
}

// Resumer is implemented by a codec that searches for the end of a frame, so that a long frame that
// arrives in many pieces is not searched from its start for each piece.
type Resumer interface {
	// DecodeFrom is Decode for data whose first seen bytes an earlier call has found to be less
	// than a frame. DecodeFrom(data, 0) is Decode(data).
	DecodeFrom(data []byte, seen int) (advance int, frame []byte, err error)
}

// Unpacker is implemented by a Stateful codec that may find several frames in bytes that it
// consumes at once: a compressed block, a frame that carries frames (see Stack).
type Unpacker interface {
	// NextFrame returns the next frame in the bytes that Decode has consumed, or nil if there is
	// none. After a Decode with an advance above 0 the caller calls NextFrame until it returns nil,
	// before the next Decode. Time may pass in between, so a frame must not be a slice of Decode's
	// data. The frame is valid until the next call of either method. An error is like one of
	// Decode.
	NextFrame() (frame []byte, err error)
}

// Responder is implemented by a codec that answers the peer by itself: a handshake, a ping.
type Responder interface {
	// AppendReply appends pending output to dst, if any, and forgets it. It is called after each
	// Decode and each NextFrame, including one that failed, and before the frame is delivered. The
	// bytes are sent as they are, not framed again.
	AppendReply(dst []byte) []byte
}

// A Peer is what a connection knows of its peer. A codec may keep it, but must not change what it
// points to.
type Peer struct {
	Remote, Local net.Addr             // of the connection
	TLS           *tls.ConnectionState // nil: the connection is not encrypted

	// Await is for a codec that has to do something that blocks, such as a database query, before
	// it can go on. Called from Decode, it runs job on a goroutine and calls then on the loop
	// afterwards; meanwhile nothing is decoded. then may leave output for Responder; its error is
	// treated as one of Decode. If the connection closes first, ctx is done, and then is not
	// called. An error means that job will not run. A nil Await means that the caller cannot wait.
	Await func(job func(ctx context.Context), then func() error) error

	// NetConn is for a codec that leaves a connection to code on goroutines, such as net/http.
	// Called from Decode, which must then consume nothing, it soon closes the connection for its
	// handler, with reason, and calls serve on the loop with all input that Decode has not
	// consumed. An error means that serve will not be called. A nil NetConn means that this is not
	// possible.
	NetConn func(reason error, serve func(NetConn)) error
}

// A NetConn is a connection of a server for use on goroutines. Any goroutine may call its methods;
// those that may block must not be called on a loop.
type NetConn interface {
	net.Conn

	// SetBusy sets whether the drain of the server waits for the connection, which it does at
	// first.
	SetBusy(busy bool)

	// Panicked logs and counts a recovered panic of code that uses the connection, as the server
	// does those of callbacks, and closes the connection.
	Panicked(v any)

	// GiveBack ends the net.Conn. The connection starts over with a new codec and handler, as if
	// read and what the peer sends after it were its whole input. read belongs to the callee.
	GiveBack(read []byte) error
}

// Opener is implemented by a codec whose protocol does not begin with messages, but with a
// handshake, a preface or a banner.
type Opener interface {
	// Open is called once, when the codec gets its connection: before Accept, for a connection's
	// first codec; not if the output has been shut down. It appends our first output to dst, if
	// any, which is sent as it is, not framed again. An error closes the connection, and nothing is
	// sent; so a password need not go out without TLS. timeout bounds the handshake from then on; 0
	// means no limit.
	Open(dst []byte, peer Peer) (greeting []byte, timeout time.Duration, err error)

	// Opening returns nil once the handshake is done, or if there is none, and until then the error
	// with which a timeout closes the connection. It must be nil when Decode returns a frame. A
	// Dialer waits until it is nil: see loop.Dialer.Codec.
	Opening() error

	// Opened is called once, if a Dialer has waited for the handshake, after the Dialer's callback
	// has received the connection, and before any message. Its error is treated as one of Decode.
	Opened() error
}

// Farewell is implemented by a codec that sends something before closing: a close frame, an end of
// stream.
type Farewell interface {
	// AppendFarewell appends the last output to dst, if any. It is called once, when our side
	// closes the connection for any reason, with the error that OnClose will get; not if the peer
	// could not receive it, or if Open has failed. The codec is not used afterwards.
	AppendFarewell(dst []byte, err error) []byte
}

// Sizer is implemented by a codec that knows the length of a frame before all of it has arrived, so
// that a buffer of the right size is made once, or that bounds it. The frames of other codecs are
// bounded by loop.Server.Limits.MaxFrame.
type Sizer interface {
	// FrameSize returns the wire size, in bytes, of the frame at the start of data. If exact is
	// false, data, which may be empty, does not show the size yet or cannot be a frame, and size is
	// a bound: no frame that Decode finds is longer. 0 means that the codec has no bound. A peer
	// that exceeds size without completing its frame is closed with ErrTooLong, even if Decode
	// would wait for more. An exact size does not mean that these bytes will ever arrive.
	FrameSize(data []byte) (size int, exact bool)
}

// Assembler is implemented by a Stateful codec that receives a message in several frames and holds
// its parts until the last one has arrived: fragments, chunks. It reports what it holds, so that
// the loop can bound the memory, and the time for the rest.
//
// Delivering a message restarts the timeout for the remaining fragments. So a codec that delivers
// messages between the fragments of another must bound the number of those itself.
type Assembler interface {
	// Unfinished returns how many bytes the codec holds of unfinished messages, and whether there
	// is one, as its parts may all have been empty so far; 0, false without one. It is called after
	// input was decoded, and to inspect a connection. It changes nothing.
	Unfinished() (size int, ok bool)
}

// Saver is implemented by a codec of one connection whose state can move to another process with
// the connection (see package loop/handover).
type Saver interface {
	// Save returns the state. It may be called within a frame, but never during a call of another
	// method, and changes nothing. An error means that the state cannot be saved now.
	Save() ([]byte, error)

	// Restore is called once with the result of Save, on a codec that New has just made, instead of
	// everything at the beginning of a connection, Open included. The state may be from another
	// version of the program. An error closes the connection.
	Restore(state []byte) error
}

// Validator is implemented by a codec whose fields can be invalid. Servers call it when they start.
// The codecs of this package return the same error from Decode and AppendFrame.
type Validator interface {
	// Validate returns nil or an error that names the field. The errors of this package wrap
	// ErrConfig.
	Validate() error
}

// limit returns the number of bytes that a Max field stands for.
func limit(max int) int { return length.Limit(max) }

// wireLimit returns max, or what it stands for, and extra bytes around it; not more than an int
// holds.
func wireLimit(max, extra int) int {
	return min(limit(max), math.MaxInt-extra) + extra
}
