package loop_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"net"
	"testing"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/internal/testhook"
)

// largest is a codec that notes how much input it has seen at once.
type largest struct {
	codec.Length
	most *int
}

func (l largest) Decode(data []byte) (int, []byte, error) {
	*l.most = max(*l.most, len(data))
	return l.Length.Decode(data)
}

// Long frames that are there come with one turn, as far as HoldBackAt goes, and whole: a read of a
// part of them costs two or three times the CPU time.
func TestLongFramesComeTogether(t *testing.T) {
	const frame = 4 + 16<<10
	if testhook.DefaultEngine() == "net" {
		t.Skip("a reader of the engine on Go's own net has 64 KiB at most")
	}
	bothEngines(t, func(t *testing.T, ctx context.Context) {
		var most int // the loop's
		ready, sent := make(chan struct{}), make(chan struct{})
		srv := &loop.Server{
			Addr:  "tcp://127.0.0.1:0",
			Codec: largest{most: &most},
			TCP:   loop.TCPOptions{ReceiveBuffer: 1 << 20},
			Accept: func(c *loop.Conn) loop.Handler {
				close(ready)
				<-sent
				return loop.HandlerFunc(echo)
			},
		}
		startWith(t, ctx, srv)
		c, err := net.Dial("tcp", srv.LocalAddr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		<-ready
		_, err = c.Write(bytes.Repeat(append(binary.BigEndian.AppendUint32(nil, frame-4), make([]byte, frame-4)...), 16))
		testkit.Want(t, "error", err, nil)
		close(sent)
		testkit.Eventually(t, "all 16 frames are echoed", func() bool { return srv.Stats().Messages == 16 })
		cl := make(chan int)
		testkit.Want(t, "post", srv.Loops()[0].Post(func() { cl <- most }), nil)
		testkit.Want(t, "input at once", <-cl, 16*frame)
	})
}
