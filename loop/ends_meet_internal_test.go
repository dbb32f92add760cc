package loop

import (
	"errors"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/loopwheel/loopwheel/internal/inside"
	"github.com/loopwheel/loopwheel/loop/internal/engine"
)

// The end of the context and a handover may stop accepting at the same instant. Both goroutines
// spin for that, and so need a processor each.
func TestStopAcceptingTwiceAtOnce(t *testing.T) {
	var round [2]atomic.Int64
	servers := make([]Server, 10_000)
	for i := range servers {
		servers[i].notAccepting = make(chan struct{})
	}
	var both sync.WaitGroup
	for me := range round {
		both.Go(func() {
			for i := range servers {
				round[me].Add(1)
				for spins := 0; round[1-me].Load() < int64(i+1); spins++ {
					if spins%1000 == 999 {
						runtime.Gosched()
					}
				}
				servers[i].stopAccepting()
			}
		})
	}
	both.Wait()
}

// wokenLoop runs the loop's turn at once when somebody posts, and that is its last one.
type wokenLoop struct {
	rigLoop
	loop *Loop
}

func (w *wokenLoop) Wake() {
	w.loop.mayStop = true
	w.loop.turn()
}

func (*wokenLoop) ServePacket(net.Conn, engine.PacketSink) (engine.Packets, error) {
	return nil, errors.ErrUnsupported
}

// A handover gets back the connections that it has frozen on a loop, even if that loop has ended.
func TestMoveOutOfALoopThatEnds(t *testing.T) {
	for range 50 {
		r := newRig(t, &Server{}, HandlerFunc(echoAll))
		r.Loop.engine = &wokenLoop{loop: r.Loop}
		for range 3 {
			r.connect()
		}
		var at inside.Cursor
		if r.server.freeze(&at, 0, 0); at.Next != 2 {
			t.Fatalf("the place to go on from is %d, want 2", at.Next)
		}
	}
}

// Nor is what was said of a UDP socket.
func TestServePacketsOfALoopThatEnds(t *testing.T) {
	for range 50 {
		r := newRig(t, &Server{}, HandlerFunc(echoAll))
		r.Loop.engine = &wokenLoop{loop: r.Loop}
		nc, _ := net.Pipe()
		if err := r.servePackets(&listener{}, nc); !errors.Is(err, errors.ErrUnsupported) {
			t.Fatalf("got %v, want what the engine said", err)
		}
	}
}
