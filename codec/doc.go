// Package codec turns a stream of bytes into frames and frames into bytes.
//
// A protocol on TCP has to mark where its messages begin and end, because the network does not:
// what one side sends in one piece may arrive in three, or together with the next. A Codec is that
// part of a protocol:
//
//	Raw         no framing: the bytes as they arrive
//	Lines       text lines that end in "\n" or "\r\n"
//	Delimiter   frames that end in any fixed bytes
//	Fixed       frames of one size
//	Length      frames with a length field, anywhere in a header of any layout
//	Varint      frames after their length as a varint, as Protocol Buffers delimit them
//	Stack       a codec on a codec: frames inside the frames of another protocol
//
// They are plain values: Length{Size: 2} is ready to use, for any number of connections and on any
// goroutine. Those that wait for the end of a frame, all except Raw and Fixed, limit its length by
// Max; zero means DefaultMax, and no value means unlimited. Max counts the bytes of the frame as
// delivered and as passed to AppendFrame, without what the codec puts around it. A longer frame is
// refused with ErrTooLong as early as possible: with a length field, when that has arrived.
//
// # Write a codec
//
// A Codec has two methods: Decode, which finds the first frame in the available bytes, and
// AppendFrame. The table at Codec shows what Decode returns for less than a frame, exactly one, and
// more. Most codecs need no more. Optional interfaces support more protocols:
//
//	the protocol, or the codec                            implement
//	remembers something of each connection                Stateful
//	searches for the end of a frame, which may be far     Resumer
//	answers the peer by itself: pongs, acknowledgements   Responder
//	knows the length of a frame early, or bounds it       Sizer
//	sends a message in several frames                     Assembler
//	finds several frames in bytes it consumes at once     Unpacker
//	begins with a handshake, or our side speaks first     Opener
//	sends something before closing                        Farewell
//	can move to another process with its connection       Saver
//	has settings that can be wrong                        Validator
//
// A codec that builds on another keeps it in a field. Do not embed it: its optional methods would
// be promoted, and a server would call an embedded DecodeFrom instead of the new Decode, and skip
// what Decode checks.
//
// Package codectest tests any codec against all of this, including that mistake, except for Opened
// and timeouts, which need a server.
//
// # Ownership of bytes
//
// Frames are borrowed: a frame is a slice of the input buffer. It may be read and overwritten until
// the callback that got it returns; copy it to keep it longer.
package codec
