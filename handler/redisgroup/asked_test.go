package redisgroup

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"sync"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
)

// A gate keeps what connections with subscriptions are answered while it is shut.
type gate struct {
	mu   sync.Mutex
	open *sync.Cond
	shut bool
}

func newGate() *gate {
	g := &gate{}
	g.open = sync.NewCond(&g.mu)
	return g
}

func (g *gate) set(shut bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.shut = shut
	g.open.Broadcast()
}

func (g *gate) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	c, err := new(net.Dialer).DialContext(ctx, network, addr)
	return &gateConn{Conn: c, gate: g}, err
}

type gateConn struct {
	net.Conn
	gate       *gate
	subscribes bool // guarded by the gate's mu
}

func (c *gateConn) Write(b []byte) (int, error) {
	c.gate.mu.Lock()
	c.subscribes = c.subscribes || bytes.Contains(b, []byte("SUBSCRIBE"))
	c.gate.mu.Unlock()
	return c.Conn.Write(b)
}

func (c *gateConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.gate.mu.Lock()
	defer c.gate.mu.Unlock()
	for c.gate.shut && c.subscribes {
		c.gate.open.Wait()
	}
	return n, err
}

// asked returns of how many channels an answer is to come.
func (h *Hub) asked() int {
	w := h.topo.link(0).in.wire.Load()
	if w == nil {
		return 0
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.asked
}

// settled reports whether there is a connection, and nothing more to do on it.
func (f *feed) settled() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.wire.Load() != nil && len(f.todo) == 0
}

// While Redis does not answer, rooms that are joined and left cost nothing but the first of them;
// those that are there when it does are subscribed to.
func TestNoMoreIsAskedThanIsAnswered(t *testing.T) {
	g, m := newGate(), miniredis.RunT(t)
	h := openOn(t, m, redis.Options{Dialer: g.dial})
	const kept, together, rounds = 3000, 500, 5 * maxAsked / 500
	hold := func(name string, i int) *room { return h.hold(h.keys.place(plainRoom, fmt.Sprint(name, i))) }
	hold("kept", 0)
	soon(t, "the first is subscribed to", func() bool { return h.topo.link(0).in.settled() && h.asked() == 0 })
	g.set(true)
	most := 0
	for n := range rounds {
		var passing []*room
		for i := range together {
			passing = append(passing, hold("passing", n*together+i))
		}
		asked := func() bool { return h.topo.link(0).in.settled() || h.asked() > maxAsked }
		soon(t, "they are asked for, if they may be", asked)
		for _, r := range passing {
			h.release(r)
			h.forget(r, r.visits)
		}
		soon(t, "that they are left is said, if it may be", asked)
		most = max(most, h.asked(), Subscriptions(h))
	}
	for i := range kept {
		hold("kept", i)
	}
	if most < maxAsked || most > maxAsked+together {
		t.Errorf("%d were asked for at once, want %d and a few more", most, maxAsked)
	}
	g.set(false)
	soon(t, "all who are there are subscribed to", func() bool { return h.topo.link(0).in.settled() && h.asked() == 0 && Subscriptions(h) == kept })
	soon(t, "Redis has them", func() bool { return len(m.PubSubChannels("*")) == kept })
}
