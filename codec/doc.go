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
//	Varint      frames after their length as a varint, as Protocol Buffers delimit them
//	Stack       a codec on a codec: frames inside the frames of another protocol
//
// They are plain values: Length{Size: 2} is ready for use, for any number of connections and on any
// goroutine. Those that wait for the end of a frame, all but Raw and Fixed, have a limit on its
// length, Max, which is DefaultMax if it is zero; there is no way to have none. Max counts the
// bytes of the frame as it is delivered and as it is given to AppendFrame, not what the codec puts
// around it. A peer that sends more is refused with ErrTooLong as soon as it can be known, which
// for a length field is when the field is there.
//
// # Write a codec
//
// Two methods make a Codec: Decode, which finds the first frame in the bytes there are, and
// AppendFrame. The table at Codec says what Decode answers when there is less than a frame, exactly
// one, and more. Most codecs need no more. A protocol may ask for more:
//
//	the protocol, or the codec                            implement
//	remembers something of each connection                Stateful
//	searches for the end of a frame, which may be far     Resumer
//	answers the peer by itself: pongs, acknowledgements   Responder
//	knows the length of a frame early, or bounds it       Sizer
//	sends a message in several frames                     Assembler
//	finds several frames in bytes it consumes at once     Unpacker
//	begins with a handshake, or our side speaks first     Opener
//	has a last word                                       Farewell
//	has settings that can be wrong                        Validator
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
