package codec

import "github.com/loopwheel/loopwheel/internal/length"

// StripNone as Length.Strip delivers frames whole, header included.
const StripNone = length.StripNone

// Length is the codec of frames that say in a length field how long they are. The zero Length is a
// 4-byte big-endian length of the payload that follows, and delivers the payload:
//
//	on the wire                                   frames
//	00 00 00 05 h e l l o 00 00 00 00 00 00 01    "hello" "", and 3 bytes wait for the rest
//
// In general a frame is a prefix of Offset bytes, a field of Size bytes, and the rest:
//
//	|<- Offset ->|<- Size ->|<------- value of the field + Adjust ------->|
//	+------------+----------+---------------------------------------------+
//	|   prefix   |  length  |                    rest                     |
//	+------------+----------+---------------------------------------------+
//	|<----- Strip ----->|<------- the frame that is delivered ----------->|
//
// Some protocols, as field settings, and the frame of the payload "HELLO" (bytes in hex, letters as
// they are):
//
//	2-byte length of the payload: 00 05 HELLO
//	    Length{Size: 2}                               delivers HELLO
//	the same, delivered with its header
//	    Length{Size: 2, Strip: StripNone}             delivers 00 05 HELLO
//	the field counts itself too: 00 07 HELLO
//	    Length{Size: 2, Inclusive: true}              delivers HELLO
//	a 2-byte magic number first: CA FE 00 05 HELLO
//	    Length{Offset: 2, Size: 2, Strip: StripNone}  delivers CA FE 00 05 HELLO
//	    Length{Offset: 2, Size: 2, Strip: 4}          delivers HELLO
//	the same, and the field counts the whole frame: CA FE 00 09 HELLO
//	    Length{Offset: 2, Size: 2, Adjust: -4, Strip: StripNone}
//	                                                  delivers CA FE 00 09 HELLO
//	a type byte after the length, not counted by it: 00 05 07 HELLO
//	    Length{Size: 2, Adjust: 1}                    delivers 07 HELLO
//	    Length{Size: 2, Adjust: 1, Strip: 3}          delivers HELLO
//
// AppendFrame takes what Decode delivers: the frame without its first Strip bytes. It computes the
// field and writes it over whatever the frame has in its place, and it writes zeros for all other
// bytes that Decode strips. To send a value in the prefix, or in the bytes after the field, do not
// strip them.
type Length struct {
	// Offset is the number of bytes before the length field.
	Offset int
	// Size is the length of the field in bytes: 1, 2, 3, 4 or 8. 0 means 4.
	Size int
	// LittleEndian says that the field's least significant byte comes first.
	LittleEndian bool
	// Adjust is added to the field's value to get the number of bytes after the field. It may be
	// negative.
	Adjust int
	// Strip is the number of bytes to drop from the start of each frame before it is delivered. 0
	// means the header, Offset+Size bytes; StripNone means none.
	Strip int
	// Inclusive says that the field's value counts the field itself. It is the same as
	// an Adjust that is lower by Size.
	Inclusive bool
	// Max is the longest frame that is delivered or sent, in bytes; those that are stripped do not
	// count. 0 means DefaultMax. A longer one is refused as soon as its header is there.
	Max int
}

// Validate implements Validator.
func (c Length) Validate() error {
	_, err := c.reader()
	return err
}

// Decode finds the first frame. ErrTooLong and ErrMalformed (a field that says less than its own
// header, or than Strip) come as soon as the header is there.
func (c Length) Decode(data []byte) (advance int, frame []byte, err error) {
	l, err := c.reader()
	if err != nil {
		return 0, nil, err
	}
	return l.Decode(data)
}

// FrameSize implements Sizer.
func (c Length) FrameSize(data []byte) (size int, exact bool) {
	l, err := c.reader()
	if err != nil {
		return 0, false
	}
	return l.FrameSize(data)
}

// AppendFrame appends a frame that Decode will deliver as this one. It fails with ErrTooLong if
// frame is longer than Max or than the field can say, and with ErrMalformed if it is shorter than
// the part of the header that is not stripped, or than Adjust allows.
func (c Length) AppendFrame(dst, frame []byte) ([]byte, error) {
	l, err := c.reader()
	if err != nil {
		return dst, err
	}
	return l.AppendFrame(dst, frame)
}

func (c Length) reader() (length.Reader, error) { return (*length.Layout)(&c).Reader() }
