package realtest_test

import (
	"encoding/binary"
	"io"
	"net"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop"
)

// Three connections keep the only loop busy, and a fourth one is answered all the same: the
// messages of the others that come first are those of one share, not all that there are.
func TestFloodsLeaveTheLoopToOthers(t *testing.T) {
	const cost = 20 * time.Microsecond
	var flooded atomic.Int64
	srv := &loop.Server{
		Addr: "tcp://127.0.0.1:0", NumLoops: 1, Codec: codec.Fixed{Size: 8},
		Accept: func(*loop.Conn) loop.Handler {
			return loop.HandlerFunc(func(c *loop.Conn, msg []byte) error {
				if msg[0] == 'p' {
					return c.Send(binary.BigEndian.AppendUint64(nil, uint64(flooded.Load())))
				}
				flooded.Add(1)
				for began := time.Now(); time.Since(began) < cost; {
				}
				return nil
			})
		},
	}
	start(t, srv)
	for range 3 {
		go floodWith(dial(t, srv.LocalAddr()), []byte("flooding"))
	}
	testkit.Eventually(t, "the floods have begun", func() bool { return flooded.Load() > 1000 })
	probe := dial(t, srv.LocalAddr())
	var between []int64
	for range 200 {
		before, answer := flooded.Load(), make([]byte, 8)
		if _, err := probe.Write([]byte("prober 1")); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(probe, answer); err != nil {
			t.Fatal(err)
		}
		between = append(between, int64(binary.BigEndian.Uint64(answer))-before)
	}
	slices.Sort(between)
	t.Logf("messages of the floods that came before a prober's: median %d, at most %d", between[100], between[199])
	if between[100] > 500 { // a share is 25, a buffer of input 32,768
		t.Errorf("%d messages of the floods before an answer, in the median", between[100])
	}
}

// floodWith sends msg until c ends.
func floodWith(c net.Conn, msg []byte) {
	many := slices.Repeat(msg, 4096)
	for {
		if _, err := c.Write(many); err != nil {
			return
		}
	}
}
