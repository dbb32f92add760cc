package handler_test

import (
	"bytes"
	"fmt"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/handler"
)

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
	var a, b handler.FrameKeyer = &upper{}, &upper{}
	fmt.Println(a.FrameKey() == b.FrameKey())
	// Output: true
}
