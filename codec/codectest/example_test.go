package codectest_test

import (
	"testing"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/codec/codectest"
)

// A custom codec is checked by a test like this one, whose name would begin with Test.
func ExampleSuite() {
	testCodec := func(t *testing.T) {
		codectest.Suite{
			New:     func() codec.Codec { return codec.Lines{Max: 80} },
			Samples: [][]byte{[]byte("hello"), {}},
		}.Run(t)
	}
	_ = testCodec
}
