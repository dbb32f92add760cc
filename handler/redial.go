package handler

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/loop"
)

// Defaults of Redial.
const (
	DefaultRedialMin = 100 * time.Millisecond
	DefaultRedialMax = 30 * time.Second
)

// ErrAway: there is no connection now, and no more may be kept for the next one.
var ErrAway = errors.New("handler: not connected")

// A Redial keeps a connection to an address: when it ends, or cannot be made, it is dialled again,
// after a time that doubles from Min to Max, with full jitter (AWS, "Exponential Backoff And
// Jitter"): a random part of that time, so that not all clients come at once when a server comes
// back. A connection that has lasted for Max begins at Min again.
//
//	up := handler.Redial{Dialer: loop.Dialer{Codec: codec.Lines{}}, Addr: "tcp://db:5432", Open: f}
//	link := up.Start(l) // on loop l
//	...
//	link.Send([]byte("hello"))
//
// A connection that begins in plain text is open all the same: what was kept, and what is sent
// until loop.Conn.StartTLS is called, is not encrypted. For more connections, Start more than one.
// A Heartbeat, put around Open by Chain, finds a peer that is dead but has not closed.
type Redial struct {
	Dialer loop.Dialer
	Addr   string // as for Dialer.Dial
	// Open is the Accept of each new connection. nil refuses, which counts as a failed attempt.
	Open loop.Accept
	// State, if not nil, is called on the loop for each change: with the connection and nil when it
	// is open, after Open; with nil and the reason when an attempt has failed or the connection has
	// ended. Nothing else tells why there is no connection: it is where to log that.
	State func(c *loop.Conn, err error)
	// Min and Max bound the time between two attempts. 0 means 100 ms, and 30 s.
	Min, Max time.Duration
	// Keep is how many messages Link.Send keeps while there is no connection, or it closes; they
	// are sent first on the next one, as fast as the peer takes them. 0 means none: Send fails with
	// ErrAway, or as Conn.Send does while the connection closes.
	Keep int
	// Drop has the oldest kept message give way to a new one, in place of ErrAway.
	Drop bool
}

// Start begins to dial on l, and must be called there. A configuration that can never connect
// panics. The Link lives until Stop, or the end of the loop.
func (r Redial) Start(l *loop.Loop) *Link {
	require(r.Open != nil, "Redial without an Open")
	if err := in.DialerError(r.Dialer, r.Addr); err != nil { // or it would be tried again and again
		panic("handler: Redial: " + err.Error())
	}
	require(r.Min >= 0 && r.Max >= 0 && r.Keep >= 0, "Redial with a negative Min, Max or Keep")
	r.Min = cmp.Or(r.Min, DefaultRedialMin)
	r.Max = cmp.Or(r.Max, max(DefaultRedialMax, r.Min))
	require(r.Max >= r.Min, "Redial with a Max below Min")
	in.Check(l, "handler.Redial.Start")
	if r.State == nil {
		r.State = func(*loop.Conn, error) {}
	}
	k := &Link{redial: r, loop: l, wait: r.Min, ended: make(chan struct{})}
	locals.Get(l).living[k] = struct{}{}
	k.dial()
	return k
}

// A Link is a connection that is kept by a Redial. Its methods must be called on its loop, but for
// Shutdown.
type Link struct {
	redial  Redial
	loop    *loop.Loop
	conn    *loop.Conn // nil: there is none
	since   time.Time  // when that was opened
	wait    time.Duration
	timer   loop.Timer
	cancel  func()
	kept    [][]byte
	stats   LinkStats // but Open and Kept
	live    bool      // there is a connection, or Open is asked about one
	stopped bool
	ended   chan struct{} // closed when it has stopped and the connection has ended
}

// LinkStats are the numbers of a Link.
type LinkStats struct {
	Open    bool
	Dials   uint64 // attempts
	Opened  uint64 // of these
	Kept    int    // messages that wait for a connection
	Dropped uint64 // that gave way to newer ones, were refused by the codec, or were left at Stop
}

// Conn returns the connection, or nil if there is none now.
func (k *Link) Conn() *loop.Conn {
	in.Check(k.loop, "handler.Link.Conn")
	return k.conn
}

// Send sends msg, or keeps a copy for the next connection, or after what was kept. ErrAway:
// Redial.Keep messages are kept. loop.ErrClosed: the Link was stopped. Other errors are
// Conn.Send's. A message may be lost with its connection: only an answer tells, see Calls.
func (k *Link) Send(msg []byte) error {
	in.Check(k.loop, "handler.Link.Send")
	switch {
	case k.stopped:
		return loop.ErrClosed
	case k.conn != nil && len(k.kept) == 0:
		if err := k.conn.Send(msg); !ends(err) || k.redial.Keep == 0 {
			return err
		}
	}
	switch {
	case k.redial.Keep == 0, len(k.kept) >= k.redial.Keep && !k.redial.Drop:
		return ErrAway
	case len(k.kept) >= k.redial.Keep:
		k.takeKept()
		k.stats.Dropped++
	}
	k.kept = append(k.kept, bytes.Clone(msg))
	return nil
}

// ends reports whether err says that a connection takes no more messages, though it may not have
// closed yet: its output is being flushed, or its protocol's closing handshake is under way.
func ends(err error) bool {
	return errors.Is(err, loop.ErrClosed) || errors.Is(err, loop.ErrSlowConsumer) || errors.Is(err, codec.ErrClosed)
}

// takeKept takes out the oldest message.
func (k *Link) takeKept() (msg []byte) {
	msg, k.kept[0] = k.kept[0], nil
	k.kept = k.kept[1:]
	return msg
}

// Stats returns the numbers up to now.
func (k *Link) Stats() LinkStats {
	in.Check(k.loop, "handler.Link.Stats")
	s := k.stats
	s.Open, s.Kept = k.conn != nil, len(k.kept)
	return s
}

// Stop closes the connection, if there is one, and dials no more. State is called for its end.
func (k *Link) Stop() {
	in.Check(k.loop, "handler.Link.Stop")
	if k.stopped {
		return
	}
	k.stopped = true
	delete(locals.Get(k.loop).living, k)
	k.timer.Stop()
	if k.cancel != nil {
		k.cancel()
	}
	k.stats.Dropped += uint64(len(k.kept))
	k.kept = nil
	if !k.live {
		close(k.ended)
	} else if k.conn != nil {
		k.conn.Close()
	}
}

// Shutdown is Stop for any goroutine but a loop's, and waits until the connection has closed and
// none of its code, State or its calls runs any more. When ctx is done it returns ctx's error.
func (k *Link) Shutdown(ctx context.Context) error {
	k.loop.Post(k.Stop) // a loop that ends stops its Links
	return await(ctx, k.ended)
}

func (k *Link) dial() {
	k.stats.Dials++
	k.cancel = k.redial.Dialer.Dial(k.loop, k.redial.Addr, k.opened)
}

// opened is what the Dialer tells.
func (k *Link) opened(c *loop.Conn, err error) loop.Handler {
	k.cancel = nil
	if err != nil {
		k.failed(err)
		return nil
	}
	k.live = true
	c.AfterClose(k.closed)
	h := k.redial.Open(c)
	if h == nil || k.stopped {
		return nil // then c closes, refused
	}
	k.conn, k.since = c, k.loop.Now()
	k.stats.Opened++
	k.sendKept()
	k.redial.State(c, nil)
	return h
}

// sendKept sends what was kept, as the peer takes it: above loop.Server.Limits.MaxOutbound the
// connection would close. A message that the codec refuses is dropped, or it would hold back all
// after it. A hook of the connection, which Send may call, may send more by the Link, or stop it.
func (k *Link) sendKept() {
	for len(k.kept) > 0 && k.conn != nil && in.WhenPending(k.conn, in.MaxOutbound(k.conn)/2, k.sendKept) {
		c, msg := k.conn, k.takeKept()
		switch err := c.Send(msg); {
		case err == nil:
		case ends(err) && !k.stopped: // the next connection gets it
			k.kept = slices.Insert(k.kept, 0, msg)
			return
		default:
			k.stats.Dropped++
			warnSeldom(c, err, "a kept message cannot be sent")
		}
	}
}

// closed is told when a connection has ended, or was refused by Open.
func (k *Link) closed(err error) {
	if k.conn != nil && k.loop.Now().Sub(k.since) >= k.redial.Max {
		k.wait = k.redial.Min
	}
	k.conn, k.live = nil, false
	err = cmp.Or(err, loop.ErrClosed)
	if ended := func() { close(k.ended) }; k.stopped && k.loop.Post(ended) != nil { // after what ends with c
		ended()
	}
	k.failed(err)
}

// failed tells why there is no connection, and dials again later, though State panics. It does not
// go by err: loop.ErrServerClosed may be another server's, that a handler has passed on.
func (k *Link) failed(err error) {
	if !k.stopped && !in.Draining(k.loop) {
		d := time.Duration(rand.Int64N(int64(k.wait))) + 1
		k.wait = min(2*k.wait, k.redial.Max)
		k.timer = k.loop.AfterFunc(d, k.dial)
	}
	k.redial.State(nil, err)
}

// loopEnds stops the Link when its loop ends.
func (k *Link) loopEnds() { k.Stop() }
