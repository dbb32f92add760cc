package loop

import (
	"errors"
	"io"
	"testing"

	"github.com/loopwheel/loopwheel/codec"
)

type closeNoter struct{ reason *error }

func (closeNoter) OnMessage(*Conn, []byte) error   { return nil }
func (h closeNoter) OnClose(_ *Conn, reason error) { *h.reason = reason }

// A peer half-closes while output waits, and no descriptor is left to keep the socket by: the
// output is lost, and OnClose says so.
func TestHalfCloseWithoutDescriptorLosesOutput(t *testing.T) {
	for _, closing := range []bool{false, true} {
		for _, size := range []int{0, 100} {
			var reason error
			r := newRig(t, &Server{Codec: codec.Lines{}}, closeNoter{&reason})
			c, sink, sock := r.connect()
			sock.room, sock.noDescriptor = 0, true
			r.enter()
			if size > 0 {
				_ = c.Send(make([]byte, size))
			}
			r.leave()
			if closing {
				c.beginClose(nil)
			}
			sink.Ended(io.EOF)
			if got, want := errors.Is(reason, ErrOutputLost), size > 0; got != want || !c.isClosed() {
				t.Errorf("closing: %v, %d bytes of output: closed %v with %v; ErrOutputLost %v, want %v", closing, size, c.isClosed(), reason, got, want)
			}
			if n := r.count[numCut].Load(); n != uint64(size/100) {
				t.Errorf("closing: %v, %d bytes of output: %d are counted as cut", closing, size, n)
			}
		}
	}
}
