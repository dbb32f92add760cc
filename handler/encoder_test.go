package handler_test

import (
	"bytes"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/handler"
	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/looptest"
)

// counting is a codec.Lines that counts how often it encodes. It is comparable.
type counting struct {
	codec.Lines
	encoded *atomic.Int64
}

func (c counting) AppendFrame(dst, frame []byte) ([]byte, error) {
	c.encoded.Add(1)
	return c.Lines.AppendFrame(dst, frame)
}

// uncomparable is the same, but cannot be compared.
type uncomparable struct {
	counting
	_ []int
}

// numbered is a codec with state: each connection numbers its lines.
type numbered struct {
	counting
	n int
}

func (c *numbered) New() codec.Codec { return &numbered{counting: c.counting} }

func (c *numbered) AppendFrame(dst, frame []byte) ([]byte, error) {
	c.n++
	return c.counting.AppendFrame(fmt.Appendf(dst, "%d ", c.n), frame)
}

// keyed is a codec with state that encodes alike for all connections once they are open, as
// WebSocket does.
type keyed struct {
	counting
	open bool
}

func (c *keyed) New() codec.Codec { return &keyed{counting: c.counting} }

func (c *keyed) FrameKey() any {
	if !c.open {
		return nil
	}
	return "keyed"
}

func (c *keyed) Decode(data []byte) (int, []byte, error) {
	c.open = true
	return c.counting.Decode(data)
}

// DecodeFrom hides that of Lines, which would bypass Decode.
func (c *keyed) DecodeFrom(data []byte, _ int) (int, []byte, error) { return c.Decode(data) }

// A message is encoded once per loop for all members with equal codecs, and for each one whose
// codec has state.
func TestGroupEncodesOnce(t *testing.T) {
	const loops, perCodec = 2, 10
	for _, test := range []struct {
		name  string
		codec func(n *atomic.Int64) codec.Codec
		want  int64
	}{
		{"comparable", func(n *atomic.Int64) codec.Codec { return counting{encoded: n} }, loops},
		{"pointer", func(n *atomic.Int64) codec.Codec { return &counting{encoded: n} }, loops},
		{"uncomparable", func(n *atomic.Int64) codec.Codec { return uncomparable{counting: counting{encoded: n}} }, perCodec},
		{"stateful", func(n *atomic.Int64) codec.Codec { return &numbered{counting: counting{encoded: n}} }, perCodec},
		{"keyed, open and not yet open", func(n *atomic.Int64) codec.Codec { return &keyed{counting: counting{encoded: n}} }, loops + perCodec/2},
	} {
		for _, by := range []string{"listener", "SetCodec"} {
			t.Run(test.name+" by "+by, func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					var encoded atomic.Int64
					g := handler.NewGroup(handler.GroupConfig{})
					s := &loop.Server{NumLoops: loops, Codec: test.codec(&encoded), Accept: joining(g)}
					if by == "SetCodec" {
						accept, cd := s.Accept, s.Codec
						s.Codec = codec.Lines{}
						s.Accept = func(c *loop.Conn) loop.Handler { h := accept(c); c.SetCodec(cd); return h }
					}
					srv := looptest.Start(t, s)
					peers := open(srv, perCodec)
					for _, p := range peers[perCodec/2:] {
						p.Send("-\n") // opens the keyed ones
					}
					for _, p := range peers {
						p.Received()
					}
					encoded.Store(0)
					g.Broadcast([]byte("hello"))
					testkit.Pass(0)
					for _, p := range peers {
						if got := p.Received(); !bytes.HasSuffix([]byte(got), []byte("hello\n")) {
							t.Errorf("received %q", got)
						}
					}
					if n := encoded.Load(); n != test.want {
						t.Errorf("encoded %d times for %d members on %d loops, want %d", n, perCodec, loops, test.want)
					}
				})
			})
		}
	}
}

// Members of one group may have different codecs, and many of them.
func TestGroupMixedCodecs(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := handler.NewGroup(handler.GroupConfig{})
		codecs := []codec.Codec{codec.Length{Size: 1}, codec.Raw{}, &numbered{counting: counting{encoded: new(atomic.Int64)}}}
		want := []string{"\x02hi", "hi", "1 hi\n"}
		for i := range 20 { // more than are kept
			codecs = append(codecs, codec.Lines{Max: 10 + i})
			want = append(want, "hi\n")
		}
		srv := &loop.Server{NumLoops: 1, Codec: codec.Lines{}, Accept: joining(g)}
		for _, c := range codecs {
			srv.Listeners = append(srv.Listeners, loop.Listener{Addr: "tcp://127.0.0.1:0", Codec: c})
		}
		ts := looptest.Start(t, srv)
		var peers []*looptest.Peer
		for i := range codecs {
			peers = append(peers, ts.OpenTo(i+1), ts.OpenTo(i+1))
		}
		g.Broadcast([]byte("hi"))
		testkit.Pass(0)
		for i, p := range peers {
			wantReceived(t, p, want[i/2])
		}
	})
}

// What a broadcast allocates does not depend on the number of members, as long as the loop has
// buffers for their output.
func TestGroupBroadcastAllocs(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates; run it without -race, as README's go test does")
	}
	measure := func(members int) (allocs float64) {
		bubble(t, func(t *testing.T) {
			g := handler.NewGroup(handler.GroupConfig{})
			srv := startLines(t, 1, joining(g))
			open(srv, members)
			l, done := srv.Loops()[0], make(chan struct{})
			round := func() {
				g.Broadcast([]byte("x"))
				l.Post(func() { done <- struct{}{} })
				<-done
			}
			for range 200 { // the memory that stands for sockets grows, ever more rarely
				round()
			}
			allocs = testing.AllocsPerRun(20, round)
		})
		return allocs
	}
	if few, many := measure(1), measure(60); many > few+1 {
		t.Errorf("%v allocations per broadcast to 1 member, %v to 60", few, many)
	}
}
