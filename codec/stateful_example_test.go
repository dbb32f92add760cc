package codec_test

import (
	"encoding/binary"
	"fmt"

	"github.com/loopwheel/loopwheel/codec"
)

// acked is a codec whose frames are counted and acknowledged: it has state, so it is Stateful, and
// it answers by itself, so it is a Responder.
type acked struct {
	codec.Varint
	count uint16
	due   bool
}

func (a *acked) New() codec.Codec { return &acked{Varint: a.Varint} }

func (a *acked) Decode(data []byte) (advance int, frame []byte, err error) {
	advance, frame, err = a.Varint.Decode(data)
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
	prototype := &acked{Varint: codec.Varint{Max: 1000}}
	for range 2 { // connections
		var d codec.Decoder
		d.Init(prototype, nil)
		data := []byte("\x01a\x01b")
		for more := true; more; {
			var frame []byte
			data, frame, more, _ = d.Next(data)
			fmt.Printf("%q, answer %x\n", frame, d.Codec().(codec.Responder).AppendReply(nil))
		}
	}
	// Output:
	// "a", answer 0001
	// "b", answer 0002
	// "a", answer 0001
	// "b", answer 0002
}

// upper is a codec of one connection that encodes as all of its kind do.
type upper struct{ codec.Lines }

func (u *upper) New() codec.Codec { return new(upper) }
func (u *upper) FrameKey() any    { return u.Lines }

// A codec with state may tell that it encodes alike for all connections, so that a broadcast is
// encoded once.
func ExampleFrameKeyer() {
	var a, b codec.FrameKeyer = &upper{}, &upper{}
	fmt.Println(a.FrameKey() == b.FrameKey())
	// Output: true
}
