package handler

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/loopwheel/loopwheel/loop"
)

// DefaultPoolSize is how many connections a Pool has if PoolConfig.Size is zero.
const DefaultPoolSize = 3

// PoolConfig is what a Pool is made with: Redial, with its Addr, and Open must be set.
type PoolConfig[A any] struct {
	Redial Redial     // how each connection is made; Open must be nil, Keep and Drop do not matter
	Size   int        // how many connections there are; 0 means DefaultPoolSize, 3
	Limits CallLimits // of each connection
	// Open is the Accept of each new connection. The OnMessage of its Handler gives answers to calls.
	// Calls may be begun in Open already, to say who we are: others come when it has returned.
	Open func(c *loop.Conn, calls *Calls[A]) loop.Handler
	// Middlewares are put around that handler, as by Chain: a Heartbeat finds a dead peer.
	Middlewares []Middleware
}

// A Pool is some connections of one loop to one address, kept by a Redial each, over which calls
// are spread: each goes out on the one with the fewest under way. A holds an answer.
//
//	users := handler.NewPool(l, handler.PoolConfig[reply]{
//		Redial: handler.Redial{Addr: "tcp://users:7000", Dialer: loop.Dialer{Codec: codec.Length{}}},
//		Open:   func(_ *loop.Conn, calls *handler.Calls[reply]) loop.Handler { return &backend{calls} },
//	})
//	...
//	err := users.Call(0, request, func(r reply, err error) { ... })
//
// A connection that ends fails the calls that are under way on it: whether to ask once more is for
// who knows what it does. The methods must be called on the loop, but for Shutdown. It lives until
// Stop, or the end of the loop.
type Pool[A any] struct {
	loop  *loop.Loop
	links []*Link
	lines []line[A]
	turn  uint      // may overflow
	past  CallStats // of connections that have gone
}

// A line is one connection of a Pool.
type line[A any] struct {
	conn  *loop.Conn // nil: there is none
	calls *Calls[A]
	ends  bool // it takes no calls any more
}

// PoolStats are the numbers of a Pool.
type PoolStats struct {
	Size, Open int       // connections, and how many of them stand
	Calls      CallStats // of all that there have been
}

// NewPool begins to dial on l, and must be called there: most often in Server.OnStart, or by a
// loop.Local, so that each loop has a pool of its own. A configuration that makes no sense panics.
func NewPool[A any](l *loop.Loop, cfg PoolConfig[A]) *Pool[A] {
	require(cfg.Open != nil && cfg.Redial.Open == nil, "NewPool: PoolConfig.Open must be set, and that of its Redial not")
	require(cfg.Size >= 0, "NewPool with a negative Size")
	cfg.Limits.filled() // or each connection would panic
	p := &Pool[A]{loop: l, lines: make([]line[A], cmp.Or(cfg.Size, DefaultPoolSize))}
	for i := range p.lines {
		r := cfg.Redial
		r.Open = Chain(func(c *loop.Conn) loop.Handler { return p.open(i, c, &cfg) }, cfg.Middlewares...)
		p.links = append(p.links, r.Start(l))
	}
	return p
}

// open is called for the new connection of a line.
func (p *Pool[A]) open(i int, c *loop.Conn, cfg *PoolConfig[A]) loop.Handler {
	calls := NewCalls[A](c, cfg.Limits)
	h := cfg.Open(c, calls)
	if h != nil {
		p.lines[i] = line[A]{conn: c, calls: calls}
	}
	c.AfterClose(func(error) { // after that of calls, which have failed by then
		p.past.add(calls.Stats())
		if p.lines[i].conn == c {
			p.lines[i] = line[A]{}
		}
	})
	return h
}

// Call asks: request appends the message that asks, with the id that its answer must have, to dst,
// and returns that. done is called when the call ends, as for Calls, and a timeout of 0 or less
// means CallLimits.Timeout. With an error there is no call, and done is not called. ErrAway: no
// connection stands. ErrTooManyCalls: as many calls are under way on each of them as may be. Others
// are the codec's, which does not take the message.
func (p *Pool[A]) Call(timeout time.Duration, request func(dst []byte, id uint64) []byte, done func(answer A, err error)) error {
	in.Check(p.loop, "handler.Pool.Call")
	for ln := p.pick(); ln != nil; ln = p.pick() {
		id, err := ln.calls.Begin(timeout, done)
		switch {
		case errors.Is(err, ErrTooManyCalls):
			return err
		case err == nil:
			err = sendBuilt(ln.conn, func(dst []byte) ([]byte, error) { return request(dst, id), nil })
			if err == nil || !ln.calls.Cancel(id) { // or it has ended meanwhile
				return nil
			}
			if !errors.Is(err, loop.ErrClosed) && !errors.Is(err, loop.ErrSlowConsumer) {
				return err
			}
		}
		ln.ends = true
	}
	return ErrAway
}

// pick returns the line with the fewest calls under way, of several by turns, or nil.
func (p *Pool[A]) pick() (best *line[A]) {
	p.turn++
	for i := range p.lines {
		ln := &p.lines[(p.turn+uint(i))%uint(len(p.lines))]
		if ln.conn != nil && !ln.ends && (best == nil || len(ln.calls.calls) < len(best.calls.calls)) {
			best = ln
		}
	}
	return best
}

// Stats returns the numbers up to now.
func (p *Pool[A]) Stats() PoolStats {
	in.Check(p.loop, "handler.Pool.Stats")
	s := PoolStats{Size: len(p.lines), Calls: p.past}
	for _, ln := range p.lines {
		if ln.conn != nil {
			s.Calls.add(ln.calls.Stats())
			if !ln.ends {
				s.Open++
			}
		}
	}
	return s
}

// Shutdown is Stop for any goroutine but a loop's, and waits until the connections have closed and
// all calls have ended. When ctx is done it returns ctx's error.
func (p *Pool[A]) Shutdown(ctx context.Context) (err error) {
	for _, k := range p.links {
		err = cmp.Or(err, k.Shutdown(ctx))
	}
	return err
}

// Stop closes the connections, and dials no more. Calls under way fail, with loop.ErrClosed.
func (p *Pool[A]) Stop() {
	for _, k := range p.links {
		k.Stop()
	}
}
