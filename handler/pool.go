package handler

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/loopwheel/loopwheel/loop"
)

// DefaultPoolSize is the default of PoolConfig.Size.
const DefaultPoolSize = 3

// PoolConfig holds the settings of a Pool: Link, with its Addr, and Accept must be set.
type PoolConfig[A any] struct {
	Link  LinkConfig // of each connection; its Accept must be nil, and its Backlog is not used
	Size  int        // the number of connections; 0 means DefaultPoolSize, 3
	Calls CallConfig // of each connection
	// Accept is called for each new connection. The OnMessage of its Handler passes answers to
	// calls. Accept may begin calls, for example to authenticate. Once it has returned, Pool.Call
	// uses the connection, without waiting for their answers.
	Accept func(c *loop.Conn, calls *Calls[A]) loop.Handler
	// Middlewares wrap that handler, as by Chain: a Heartbeat finds a dead peer.
	Middlewares []Middleware
}

// A Pool is a number of connections of one loop to one address, each kept open by a Link. A call
// goes out on the connection with the fewest calls under way. A is the type of an answer.
//
//	users := handler.NewPool(l, handler.PoolConfig[reply]{
//		Link:   handler.LinkConfig{Addr: "tcp://users:7000", Dialer: loop.Dialer{Codec: codec.Length{}}},
//		Accept: func(_ *loop.Conn, calls *handler.Calls[reply]) loop.Handler { return &backend{calls} },
//	})
//	...
//	err := users.Call(0, request, func(r reply, err error) { ... })
//
// When a connection closes, its calls fail; whether to retry one is up to the caller. The methods
// must be called on the loop, except Shutdown. The Pool lives until Stop, or the end of the loop. A
// drain of the server closes its connections after all others, as for a Link.
type Pool[A any] struct {
	loop  *loop.Loop
	links []*Link
	lines []line[A]
	turn  uint      // may overflow
	past  CallStats // of connections that have closed
}

// A line is one place for a connection in a Pool.
type line[A any] struct {
	conn  *loop.Conn // nil: there is none
	calls *Calls[A]
	ends  bool // it takes no more calls
}

// PoolStats are the numbers of a Pool.
type PoolStats struct {
	Size      int       // PoolConfig.Size
	Connected int       // connections that take calls
	Calls     CallStats // of all connections, past ones included
}

// NewPool returns a Pool that dials on l. It must be called there, usually in Server.OnStart or by
// a loop.Local, so that each loop has its own pool. It panics if the configuration is invalid.
func NewPool[A any](l *loop.Loop, cfg PoolConfig[A]) *Pool[A] {
	require(cfg.Accept != nil && cfg.Link.Accept == nil, "PoolConfig.Accept must be set, and PoolConfig.Link.Accept must not")
	require(cfg.Size >= 0, "PoolConfig.Size is negative")
	cfg.Calls.filled() // or each connection would panic
	p := &Pool[A]{loop: l, lines: make([]line[A], cmp.Or(cfg.Size, DefaultPoolSize))}
	for i := range p.lines {
		link := cfg.Link
		link.Accept = Chain(func(c *loop.Conn) loop.Handler { return p.accept(i, c, &cfg) }, cfg.Middlewares...)
		p.links = append(p.links, NewLink(l, link))
	}
	return p
}

// accept is called for the new connection of a line.
func (p *Pool[A]) accept(i int, c *loop.Conn, cfg *PoolConfig[A]) loop.Handler {
	calls := NewCalls[A](c, cfg.Calls)
	h := cfg.Accept(c, calls)
	if h != nil {
		p.lines[i] = line[A]{conn: c, calls: calls}
	}
	in.BeforeClose(c, func(error) { // after that of calls, which have failed by then
		p.past.add(calls.Stats())
		if p.lines[i].conn == c {
			p.lines[i] = line[A]{}
		}
	})
	return h
}

// Call sends a request: request appends the message, with the id that its answer must have, to dst
// and returns the result. done is called when the call ends, as for Calls.Begin; a timeout of 0 or
// less means CallConfig.Timeout. request is called within Call, once for each connection that is
// tried, and must not keep dst. After an error there is no call, and done is not called. ErrAway:
// not connected. ErrTooManyCalls: each connection has CallConfig.Max calls under way. Other errors
// are the codec's, which refuses the message.
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
			if !ends(err) {
				return err
			}
		}
		ln.ends = true
	}
	return ErrAway
}

// pick returns the line with the fewest calls under way, or nil; several such take turns.
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

// Stats returns the Pool's numbers.
func (p *Pool[A]) Stats() PoolStats {
	in.Check(p.loop, "handler.Pool.Stats")
	s := PoolStats{Size: len(p.lines), Calls: p.past}
	for _, ln := range p.lines {
		if ln.conn != nil {
			s.Calls.add(ln.calls.Stats())
			if !ln.ends {
				s.Connected++
			}
		}
	}
	return s
}

// Shutdown is Stop for goroutines other than a loop's; on a loop it panics. It waits until the
// connections have closed and all calls have ended; when ctx is done it returns ctx's error.
func (p *Pool[A]) Shutdown(ctx context.Context) (err error) {
	offLoop("Pool.Shutdown")
	p.loop.Post(p.Stop) // a loop that ends stops its Links
	for _, k := range p.links {
		err = cmp.Or(err, await(ctx, k.ended))
	}
	return err
}

// Stop closes the connections and stops dialing. Calls under way fail with loop.ErrClosed.
func (p *Pool[A]) Stop() {
	for _, k := range p.links {
		k.Stop()
	}
}
