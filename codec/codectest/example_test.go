package codectest_test

import (
	"testing"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/codec/codectest"
)

// In a test of one's own, the codec's author hands it over and adds what only the author knows.
func TestAuthorsUse(t *testing.T) {
	newCodec := func() codec.Codec { return codec.Varint{Max: 1000} }
	codectest.Run(t, newCodec, []byte("hello"), []byte(""))

	codectest.Suite{
		New:       newCodec,
		Max:       1000,
		TooLong:   [][]byte{{0xe9, 0x07}},
		Malformed: [][]byte{[]byte("\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff")},
	}.Run(t)
}
