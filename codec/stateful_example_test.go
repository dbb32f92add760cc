package codec_test

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/loopwheel/loopwheel/codec"
)

// acked is a codec whose frames are counted and acknowledged: it has state, so it is Stateful, and
// it answers by itself, so it is a Responder.
type acked struct {
	inner codec.Varint // in a field: embedded, its optional methods would be acked's as well
	count uint16
	due   bool
}

func (a *acked) New() codec.Codec { return &acked{inner: a.inner} }

func (a *acked) AppendFrame(dst, frame []byte) ([]byte, error) {
	return a.inner.AppendFrame(dst, frame)
}

func (a *acked) Decode(data []byte) (advance int, frame []byte, err error) {
	advance, frame, err = a.inner.Decode(data)
	if frame != nil {
		a.count++
		a.due = true
	}
	return advance, frame, err
}

func (a *acked) AppendReply(dst []byte) []byte {
	if !a.due {
		return dst
	}
	a.due = false
	return binary.BigEndian.AppendUint16(dst, a.count)
}

func ExampleStateful() {
	prototype := &acked{inner: codec.Varint{Max: 1000}}
	for range 2 { // connections
		c := prototype.New()
		for data := []byte("\x01a\x01b"); len(data) > 0; {
			n, frame, _ := c.Decode(data)
			fmt.Printf("%q, answer %x\n", frame, c.(codec.Responder).AppendReply(nil))
			data = data[n:]
		}
	}
	// Output:
	// "a", answer 0001
	// "b", answer 0002
	// "a", answer 0001
	// "b", answer 0002
}

// upper is a codec of one connection that encodes as all of its kind do: lines, in capitals.
type upper struct{ inner codec.Lines }

func (u *upper) New() codec.Codec                        { return &upper{u.inner} }
func (u *upper) FrameKey() any                           { return *u } // not inner's: frames differ
func (u *upper) Decode(data []byte) (int, []byte, error) { return u.inner.Decode(data) }
func (u *upper) AppendFrame(dst, msg []byte) ([]byte, error) {
	return u.inner.AppendFrame(dst, bytes.ToUpper(msg))
}

// A codec with state may tell that it encodes alike for all connections, so that a broadcast is
// encoded once.
func ExampleFrameKeyer() {
	var a, b codec.FrameKeyer = &upper{}, &upper{}
	fmt.Println(a.FrameKey() == b.FrameKey())
	// Output: true
}
