// Package codec turns a stream of bytes into frames and frames into bytes.
//
// A protocol on TCP has to say where its messages begin and end, because the network does not: what
// one side sends in one piece may arrive in three, or together with the next. A Codec is that part
// of a protocol:
//
//	Raw         no framing: whatever has arrived
//	Lines       text lines that end in "\n" or "\r\n"
//	Delimiter   frames that end in any fixed bytes
//	Fixed       frames of one size
//	Length      frames with a length field, anywhere in a header of any shape
//	Varint      frames behind their length as a varint, as Protocol Buffers delimit them
//
// They are plain values: Length{Size: 2} is ready for use, for any number of connections and on any
// goroutine. Those that wait for the end of a frame, all but Raw and Fixed, have a limit on its
// length, Max, which is DefaultMax if it is zero; there is no way to have none. Max counts the
// bytes of the frame as it is delivered and as it is given to AppendFrame, not what the codec puts
// around it. A peer that sends more is refused with ErrTooLong as soon as it can be known, which
// for a length field is when the field is there.
//
// # A codec of one's own
//
// Two methods make a Codec: Decode, which finds the first frame in the bytes there are, and
// AppendFrame. The table at Codec says what Decode answers when there is less than a frame, exactly
// one, and more. A codec may also be
//
//	Stateful    to have state for each connection
//	Resumer     to search a long frame once, not once for each piece of it
//	Sizer       to say early how long a frame is
//	Limiter     to say how long a frame may be, if more than loop.Server.MaxFrame
//	Assembler   to hold the parts of a message until it is whole
//	Responder   to answer the peer by itself
//	Opener      to have a limit on the time of a handshake
//	Greeting    to have the first word
//	Handover    to know when who dialled has the connection
//	Farewell    to have a last word
//	Validator   to be checked when a server starts
//
// A codec that stands on another keeps it in a field. Do not embed it: its optional methods would
// be the new codec's as well, and a server calls an embedded DecodeFrom in place of the new
// Decode, so that what Decode checks is not checked.
//
// Package codectest checks any codec against all of this, and finds that, too.
//
// # Who keeps the bytes
//
// Frames are borrowed: a frame is a piece of the buffer that the bytes were read into. It may be
// read and overwritten until the callback that got it returns, and whoever wants it for longer
// copies it.
package codec
