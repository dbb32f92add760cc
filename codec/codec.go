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

// DefaultMax is the largest frame, in bytes, that a codec takes whose Max is zero.
const DefaultMax = length.DefaultMax

// Errors of this package's codecs. They come wrapped, with the length seen and the limit;
// test for them with errors.Is.
var (
	// ErrTooLong: a frame is longer than the codec's Max, or than its length field can say.
	ErrTooLong = length.ErrTooLong

	// ErrMalformed: the bytes cannot be a frame of this codec.
	ErrMalformed = length.ErrMalformed

	// ErrEnd: the conversation has ended as its protocol provides: the peer said goodbye. A codec's
	// own errors may be this, too, by a method Is; a server then does not log them as bad input.
	ErrEnd = errors.New("codec: the protocol's own end")

	// ErrClosed: AppendFrame takes no frame any more, because the conversation ends, as after the
	// close frame of WebSocket. It says nothing about the frame, which another connection may take.
	ErrClosed = errors.New("codec: the conversation has ended")

	// ErrConfig: the codec's own fields make no sense. See Validator.
	ErrConfig = length.ErrConfig

	// ErrContract: a codec answered with something that Codec forbids, such as more bytes
	// consumed than there were. It is the codec's bug, not the peer's.
	ErrContract = errors.New("codec: Decode broke its contract")
)

// A Codec finds frames in a stream of bytes, and makes frames into bytes.
//
// The codecs of this package are plain comparable values with no state: one value serves all
// connections and any goroutine. A codec that must remember something between calls implements
// Stateful, and then belongs to one connection and to the goroutine of that connection's loop.
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
	// After less than a frame Decode is called again with the same bytes and more after them; after
	// anything else, with what follows the advance bytes. An error is final and ends the
	// connection. It wraps ErrMalformed or ErrTooLong if the peer has sent what it must not.
	//
	// A frame may be a piece of data, so it is valid for only as long as data is. An empty message
	// is an empty slice that is not nil. Decode does not keep data, and changes nothing of it but
	// bytes that it consumes: a codec may unmask or decrypt a frame where it lies.
	Decode(data []byte) (advance int, frame []byte, err error)

	// AppendFrame appends the wire form of frame to dst and returns the longer slice. It keeps
	// neither slice, and they must not overlap. It refuses what Decode would refuse to read, what
	// its length field cannot say, and what the peer would take for other than this one frame, such
	// as a line with a newline in it; with an error it returns dst as long as it was.
	AppendFrame(dst, frame []byte) ([]byte, error)
}

// Stateful is implemented by a codec that has state of its own for each connection: a handshake, a
// message in fragments, a compression window.
type Stateful interface {
	Codec

	// New returns the codec of one new connection. It may be called on any goroutine, several at
	// once.
	New() Codec
}

// Resumer is implemented by a codec that has to search for the end of a frame, so that a
// long frame that arrives in many pieces is not searched from its start for each piece.
type Resumer interface {
	// DecodeFrom is Decode for data whose first seen bytes an earlier call has examined, with the
	// answer that they are less than a frame. DecodeFrom(data, 0) is Decode(data).
	DecodeFrom(data []byte, seen int) (advance int, frame []byte, err error)
}

// Unpacker is implemented by a Stateful codec that may find several frames in bytes that it
// consumes at once: a compressed block, a frame that carries frames (see Stack).
type Unpacker interface {
	// NextFrame returns the next frame in the bytes that Decode has consumed, or nil if there is
	// none. A caller of Decode that got an advance above 0 calls NextFrame until it returns nil,
	// before the next Decode; some time may pass in between, so a frame must not be a piece of the
	// data that Decode got. The frame is valid until the next call of either method. An error is
	// like one of Decode.
	NextFrame() (frame []byte, err error)
}

// Responder is implemented by a codec that has something to say to the peer by itself: the
// answer to a handshake, a pong.
type Responder interface {
	// AppendReply appends to dst what must be sent, if anything, and forgets it. It is called after
	// each Decode and each NextFrame, also after one that failed, and before the frame that Decode
	// found is delivered. The bytes are sent as they are, not framed again.
	AppendReply(dst []byte) []byte
}

// A Peer is what a connection knows of its peer. A codec may keep it; it must not change what it
// points to.
type Peer struct {
	Remote, Local net.Addr             // of the connection
	TLS           *tls.ConnectionState // nil: the connection is not encrypted

	// Await is for a codec that has to ask something that may block, such as a database, before it
	// goes on. Called from Decode, it has job run on a goroutine, and nothing more decoded until
	// then has run, on the loop again, after job. Then may leave something for Responder; what it
	// returns is as an error of Decode. Neither Then nor the next Decode comes if the connection
	// closes first, for which ctx tells. An error means that job will not run. nil: nobody can
	// wait.
	Await func(job func(ctx context.Context), then func() error) error

	// NetConn is for a codec that leaves a connection to code on goroutines, such as net/http.
	// Called from Decode, which must consume nothing then, it ends the connection, soon, for its
	// handler, with reason; then serve is called on the loop with all that the peer sent and Decode
	// has not consumed. An error means that serve will not be called. nil: there is no such
	// net.Conn.
	NetConn func(reason error, serve func(NetConn)) error
}

// A NetConn is a connection of a server for a goroutine. Any goroutine may call its methods, and
// those that may block only where it is no loop's.
type NetConn interface {
	net.Conn

	// SetBusy says whether the drain of the server has to wait for the connection. At first it has
	// to.
	SetBusy(busy bool)

	// Panicked logs and counts a panic of code that uses the connection, as it was recovered, as
	// the server does with others, and closes the connection.
	Panicked(v any)

	// GiveBack ends the net.Conn. The connection begins anew, with a codec and a handler, as if
	// read, and what the peer sends after that, were all that it has sent. read is the callee's.
	GiveBack(read []byte) error
}

// Opener is implemented by a codec whose protocol begins with something else than messages: a
// handshake, a preface, a banner.
type Opener interface {
	// Open is called once, when the codec gets its connection, which is before Accept if it begins
	// with it; not on a connection whose output has ended. It appends to dst what our side has to
	// say before all else, if anything; that is sent as it is, not framed again. An error means
	// that nothing is sent, and closes the connection: a password is not to be told to whoever
	// listens, say. timeout is how long the handshake may take from then on; 0 means that there is
	// no limit.
	Open(dst []byte, peer Peer) (greeting []byte, timeout time.Duration, err error)

	// Opening returns nil once the handshake is done, or if there is none, and until then the
	// reason to close the connection with when the time is over. A caller that dials waits until it
	// is nil: see loop.Dialer.Codec.
	Opening() error

	// Opened is called once, if a Dialer has waited for the handshake, when who dialled has got the
	// connection, and before any message. Its error is treated as one of Decode.
	Opened() error
}

// Farewell is implemented by a codec whose protocol has a last word: a close frame, an end of the
// stream.
type Farewell interface {
	// AppendFarewell appends to dst what must be sent before the connection closes, if anything. It
	// is called once, when our side closes it, whoever or whatever did, with the reason that the
	// handler will get; it is not called if the peer could not get it. The codec is not used after
	// that.
	AppendFarewell(dst []byte, err error) []byte
}

// Sizer is implemented by a codec that knows how long a frame is before all of it is there, so that
// a buffer can be made large enough once, or how long one may be at most. The frames of a codec
// that is none are bounded by its user, as loop.Server.Limits.MaxFrame does.
type Sizer interface {
	// FrameSize returns how many bytes the frame at the start of data has on the wire. exact: it
	// has so many, if the peer sends them: it is no promise that they will ever come. Otherwise
	// data, which may be empty, does not show it yet, or cannot be a frame, and size is a bound: no
	// frame that Decode finds is longer. 0 means that the codec has no bound of its own. A peer
	// that sends more without an end to its frame is closed with ErrTooLong, also if Decode would
	// wait for still more.
	FrameSize(data []byte) (size int, exact bool)
}

// Assembler is implemented by a Stateful codec that takes a message in several frames and holds the
// parts until the last one is there: fragments, chunks. To a Decoder they are consumed, so it is
// the codec that tells who runs it what the peer has it hold, and that the peer owes it the rest.
//
// Each message that is delivered begins the time of the rest anew. So a codec that delivers
// messages between the parts of another has to bound those by itself.
type Assembler interface {
	// Unfinished returns how many bytes the codec holds of messages that have begun and not ended,
	// and whether there is one: its parts may all have been empty so far. Without one it returns 0,
	// false. It is called after a piece of input was decoded, and by whoever looks at a connection:
	// it changes nothing.
	Unfinished() (size int, ok bool)
}

// Saver is implemented by a codec of one connection whose state can go on in another process, when
// the connection moves there (see package loop/handover).
type Saver interface {
	// Save returns the state. It is called between two frames or within one, never during a call of
	// another method, and changes nothing. An error means that the state cannot be saved now.
	Save() ([]byte, error)

	// Restore is called once with what Save returned, on a codec that New has just made, in place
	// of everything that comes at the beginning of a connection, Open included. The state may come
	// from another version of the program. An error closes the connection.
	Restore(state []byte) error
}

// Validator is implemented by a codec whose fields can be set to something that makes no sense.
// Servers call it when they start. The codecs of this package return the same error from Decode and
// AppendFrame.
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
