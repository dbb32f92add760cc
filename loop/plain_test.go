package loop_test

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/looptest"
)

// hidden is a codec.Length that nobody knows to be one.
type hidden struct{ codec.Length }

// Frames that are found and written without the codec's help are those that the codec finds and
// makes: with pieces of any size, sockets that take little, pauses, other codecs in between, and
// frames that are too long.
func TestPlainFramesAreAsAnyOthers(t *testing.T) {
	first := testkit.Seed(t, 0)
	for i := range testkit.Runs(30) {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			seed := first + i
			known := plainRun(t, seed, codec.Length{Max: 150_000})
			if want := plainRun(t, seed, hidden{codec.Length{Max: 150_000}}); !slices.Equal(known, want) {
				t.Errorf("%q, want %q", known, want)
			}
		})
	}
}

// plainRun has a server with cd echo the seed's messages, and returns what happened.
func plainRun(t *testing.T, seed uint64, cd codec.Codec) (happened []string) {
	r := rand.New(rand.NewPCG(seed, 2))
	note := func(format string, args ...any) { happened = append(happened, fmt.Sprintf(format, args...)) }
	srv := &loop.Server{Codec: cd, Limits: loop.Limits{MaxOutbound: 1 << 30}, Timeouts: loop.Timeouts{Frame: time.Hour}, Accept: func(c *loop.Conn) loop.Handler {
		return script{
			Message: func(c *loop.Conn, msg []byte) error {
				note("%d: %x", len(msg), sha256.Sum256(msg))
				if len(msg)%7 == 3 {
					c.PauseRead()
					c.AfterFunc(time.Millisecond, c.ResumeRead)
				}
				if len(msg)%11 == 5 { // a codec in between, or the same anew
					c.SetCodec([]codec.Codec{codec.Length{Max: 150_000}, hidden{codec.Length{Max: 100_000}}}[len(msg)%2])
				}
				err := c.Send(msg)
				clear(msg)
				return err
			},
			Close: func(_ *loop.Conn, err error) { note("closed: %v", err) },
		}
	}}
	bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
		p := srv.Open()
		stream, n := plainStream(r), 0
		for len(stream) > 0 && !p.Closed() {
			if k := r.IntN(6); k == 0 {
				p.Block(r.IntN(200_000))
			} else if k < 3 {
				p.Unblock()
			}
			piece := stream[:min(len(stream), 1+r.IntN(1<<(1+r.IntN(18))))]
			p.Send(string(piece))
			stream = stream[len(piece):]
			wait(2 * time.Millisecond)
			n += len(p.Received())
		}
		p.Unblock()
		wait(time.Second)
		last := p.Received()
		note("%d bytes came back, the last %d %x", n+len(last), len(last), sha256.Sum256([]byte(last)))
	})
	return happened
}

// plainStream returns frames of all sizes, in some streams one that is too long.
func plainStream(r *rand.Rand) (stream []byte) {
	tooLong := r.IntN(150)
	n := 0
	for i := range 60 {
		size := r.IntN(1 << r.IntN(18))
		if i == tooLong {
			size = 150_001
		}
		stream = binary.BigEndian.AppendUint32(stream, uint32(size))
		stream = append(stream, pattern(&n, size)...)
	}
	return stream
}
