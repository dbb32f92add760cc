package mqtt

import (
	"cmp"
	"fmt"

	"github.com/loopwheel/loopwheel/codec"
)

// Type is the type of a control packet: the upper half of its first byte.
type Type byte

// The types of packets. AUTH exists in version 5 only.
const (
	CONNECT Type = iota + 1
	CONNACK
	PUBLISH
	PUBACK
	PUBREC
	PUBREL
	PUBCOMP
	SUBSCRIBE
	SUBACK
	UNSUBSCRIBE
	UNSUBACK
	PINGREQ
	PINGRESP
	DISCONNECT
	AUTH
)

var typeNames = [16]string{"type 0", "CONNECT", "CONNACK", "PUBLISH", "PUBACK", "PUBREC", "PUBREL",
	"PUBCOMP", "SUBSCRIBE", "SUBACK", "UNSUBSCRIBE", "UNSUBACK", "PINGREQ", "PINGRESP", "DISCONNECT", "AUTH"}

// String returns the name as the standard writes it.
func (t Type) String() string { return typeNames[t&15] }

// TypeOf returns the type of the packet in a frame of Codec.
func TypeOf(frame []byte) Type { return Type(frame[0] >> 4) }

// Version is the protocol version of a connection, as CONNECT has it.
type Version byte

// The versions that this package speaks.
const (
	V311 Version = 4
	V5   Version = 5
)

// String returns the version as people write it.
func (v Version) String() string {
	switch v {
	case V311:
		return "3.1.1"
	case V5:
		return "5.0"
	}
	return fmt.Sprintf("protocol level %d", byte(v))
}

// maxRemaining is the largest number that four bytes of seven bits can say: the longest packet
// without its fixed header.
const maxRemaining = 1<<28 - 1

// Codec is the codec of control packets. A frame is a whole packet with its fixed header:
//
//	on the wire             frames
//	C0 00 40 02 12 34 C0    C0 00 (PINGREQ), 40 02 12 34 (PUBACK), and one byte waits for the rest
//
// Decode checks the fixed header: the type, its flags, and the length. The Parse functions check
// the rest, including that the length has its shortest form, which version 3.1.1 does not require.
// The zero Codec is ready for use, for any number of connections and on any goroutine.
type Codec struct {
	// Max is the longest packet in bytes, received or sent, with its fixed header. 0 means
	// codec.DefaultMax. A server of version 5 tells its clients in the CONNACK's property
	// MaximumPacketSize.
	Max int
}

func (c Codec) max() int { return cmp.Or(c.Max, codec.DefaultMax) }

// Validate implements codec.Validator.
func (c Codec) Validate() error {
	if c.Max < 0 || c.Max == 1 || c.Max > maxRemaining+5 {
		return fmt.Errorf("%w: mqtt.Codec.Max is %d; it must be from 2 to %d bytes, or 0 for %d",
			codec.ErrConfig, c.Max, maxRemaining+5, codec.DefaultMax)
	}
	return nil
}

// Decode finds the first packet. It fails as soon as the first byte shows a type or flags that do not
// exist, or the length exceeds Max.
func (c Codec) Decode(data []byte) (advance int, frame []byte, err error) {
	size, err := c.size(data)
	if err != nil || size == 0 || len(data) < size {
		return 0, nil, err
	}
	return size, data[:size:size], nil
}

// FrameSize implements codec.Sizer.
func (c Codec) FrameSize(data []byte) (size int, exact bool) {
	if size, err := c.size(data); err == nil && size > 0 {
		return size, true
	}
	return c.max(), false
}

// AppendFrame appends a whole packet, as the Append methods of this package make it. It fails with
// an *Error for bytes that are not exactly one packet of at most Max bytes.
func (c Codec) AppendFrame(dst, frame []byte) ([]byte, error) {
	size, err := c.size(frame)
	if err != nil {
		return dst, err
	}
	if size != len(frame) || size == 0 {
		return dst, malformed("%d bytes are not one packet", len(frame))
	}
	return append(dst, frame...), nil
}

// size returns the length of the packet that data begins with, or 0 if data is too short to tell.
func (c Codec) size(data []byte) (int, error) {
	if len(data) == 0 {
		return 0, nil
	}
	if err := checkFlags(data[0]); err != nil {
		return 0, err
	}
	remaining, n := uvarint(data[1:])
	if n < 0 {
		return 0, malformed("the remaining length has more than four bytes")
	}
	if n == 0 {
		return 0, nil
	}
	if size := 1 + n + remaining; size <= c.max() {
		return size, nil
	}
	return 0, &Error{PacketTooLarge, fmt.Sprintf("%v of %d bytes; the limit is %d", TypeOf(data), 1+n+remaining, c.max())}
}

// checkFlags checks a packet's first byte [MQTT-2.1.3-1].
func checkFlags(first byte) error {
	want := byte(0)
	switch t := Type(first >> 4); t {
	case 0:
		return malformed("no packet has type 0")
	case PUBLISH:
		switch {
		case first&6 == 6:
			return malformed("PUBLISH with QoS 3")
		case first&8 != 0 && first&6 == 0: // [MQTT-3.3.1-2]
			return malformed("PUBLISH with QoS 0 and DUP")
		}
		return nil
	case PUBREL, SUBSCRIBE, UNSUBSCRIBE:
		want = 2
	}
	if first&15 != want {
		return malformed("%v with flags %04b; they must be %04b", Type(first>>4), first&15, want)
	}
	return nil
}

// uvarint reads a variable byte integer (section 1.5.5): n is its length in bytes, 0 if data is too
// short, negative if it has more than four bytes.
func uvarint(data []byte) (value, n int) {
	for i, b := range data {
		if i == 4 {
			return 0, -1
		}
		value |= int(b&127) << (7 * i)
		if b < 128 {
			return value, i + 1
		}
	}
	if len(data) >= 4 {
		return 0, -1
	}
	return 0, 0
}

// appendUvarint appends a variable byte integer; v is at most maxRemaining.
func appendUvarint(dst []byte, v int) []byte {
	for v >= 128 {
		dst = append(dst, byte(v)|128)
		v >>= 7
	}
	return append(dst, byte(v))
}

func uvarintSize(v int) int {
	n := 1
	for v >= 128 {
		v >>= 7
		n++
	}
	return n
}
