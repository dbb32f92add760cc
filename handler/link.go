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

// Defaults of LinkConfig.
const (
	DefaultRedialMin = 100 * time.Millisecond
	DefaultRedialMax = 30 * time.Second
)

// ErrAway: not connected, and the backlog for the next connection is full.
var ErrAway = errors.New("handler: not connected")

// LinkConfig holds the settings of a Link: Addr and Accept must be set.
type LinkConfig struct {
	Dialer loop.Dialer
	Addr   string // as for Dialer.Dial
	// Accept is called for each new connection, as loop.Server.Accept. nil refuses the connection,
	// which counts as a failed attempt.
	Accept loop.Accept
	// State, if not nil, is called on the loop for each change: with the connection and nil when it
	// is open, after Accept; with nil and the error when an attempt has failed or the connection
	// has closed. Nothing else reports failed attempts: log them here.
	State func(c *loop.Conn, err error)
	// Min and Max bound the time of which a random part passes before the next attempt (see Link).
	// 0 means 100 ms for Min, 30 s for Max.
	Min, Max time.Duration
	// Backlog is how many messages Link.Send keeps while there is no connection, or it is closing.
	// They are sent first on the next one, as fast as the peer takes them. 0 means none: Send fails
	// with ErrAway, or with Conn.Send's error while the connection closes.
	Backlog int
	// DropOldest drops the oldest message of a full backlog in favour of a new one; otherwise Send
	// returns ErrAway.
	DropOldest bool
}

// A Link keeps a connection to an address open: it dials again when the connection closes or an
// attempt fails, after a time that doubles from Min to Max, with full jitter (AWS, "Exponential
// Backoff And Jitter"): a random part of that time, which avoids a reconnect storm when a server
// comes back. After a connection that has lasted for Max, the time starts at Min again.
//
//	link := handler.NewLink(l, handler.LinkConfig{ // on loop l
//		Dialer: loop.Dialer{Codec: codec.Lines{}}, Addr: "tcp://db:5432", Accept: accept,
//	})
//	...
//	link.Send([]byte("hello"))
//
// With STARTTLS, the backlog and whatever else is sent before loop.Conn.StartTLS goes out in plain
// text. A Heartbeat, put around Accept by Chain, finds a peer that is dead but has not closed.
//
// A drain of the server closes the connection after all others, and at the latest when nine tenths
// of Server.Drain.Timeout are over. In a drain the Link does not dial.
//
// Its methods must be called on its loop, except Shutdown. It lives until Stop, or the end of the
// loop.
type Link struct {
	cfg     LinkConfig
	loop    *loop.Loop
	conn    *loop.Conn // nil: there is none
	since   time.Time  // when that was opened
	wait    time.Duration
	timer   loop.Timer
	cancel  func()
	backlog [][]byte
	stats   LinkStats // except Connected and Backlog
	live    bool      // there is a connection, or Accept is running for one
	stopped bool
	ended   chan struct{} // closed when it has stopped and the connection has closed
}

// LinkStats are the numbers of a Link.
type LinkStats struct {
	Connected bool
	Dials     uint64 // attempts
	Opened    uint64 // of these
	Backlog   int    // messages that wait for a connection
	Dropped   uint64 // made room for newer ones, were refused by the codec, or were left at Stop
}

// NewLink returns a Link that dials on l. It must be called there. It panics if the configuration
// can never connect.
func NewLink(l *loop.Loop, cfg LinkConfig) *Link {
	require(cfg.Accept != nil, "LinkConfig.Accept is nil")
	if err := in.DialerError(cfg.Dialer, cfg.Addr); err != nil { // or the Link would retry it forever
		panic("handler: LinkConfig: " + err.Error())
	}
	require(cfg.Min >= 0 && cfg.Max >= 0 && cfg.Backlog >= 0, "LinkConfig with a negative Min, Max or Backlog")
	requireUnit("LinkConfig.Min", cfg.Min)
	requireUnit("LinkConfig.Max", cfg.Max)
	cfg.Min = cmp.Or(cfg.Min, DefaultRedialMin)
	cfg.Max = cmp.Or(cfg.Max, max(DefaultRedialMax, cfg.Min))
	require(cfg.Max >= cfg.Min, "LinkConfig with a Max below Min")
	in.Check(l, "handler.NewLink")
	if cfg.State == nil {
		cfg.State = func(*loop.Conn, error) {}
	}
	k := &Link{cfg: cfg, loop: l, wait: cfg.Min, ended: make(chan struct{})}
	locals.Get(l).living[k] = struct{}{}
	k.dial()
	return k
}

// Conn returns the connection, or nil if there is none now.
func (k *Link) Conn() *loop.Conn {
	in.Check(k.loop, "handler.Link.Conn")
	return k.conn
}

// Send sends msg, or appends a copy to the backlog if that is not empty or there is no connection.
// ErrAway: the backlog is full. loop.ErrClosed: the Link was stopped. Other errors are Conn.Send's.
// A message may be lost with its connection: only an answer proves that it arrived, see Calls.
func (k *Link) Send(msg []byte) error {
	in.Check(k.loop, "handler.Link.Send")
	switch {
	case k.stopped:
		return loop.ErrClosed
	case k.conn != nil && len(k.backlog) == 0:
		if err := k.conn.Send(msg); !ends(err) || k.cfg.Backlog == 0 {
			return err
		}
	}
	switch {
	case k.cfg.Backlog == 0, len(k.backlog) >= k.cfg.Backlog && !k.cfg.DropOldest:
		return ErrAway
	case len(k.backlog) >= k.cfg.Backlog:
		k.takeOldest()
		k.stats.Dropped++
	}
	k.backlog = append(k.backlog, bytes.Clone(msg))
	return nil
}

// ends reports whether err means that a connection takes no more messages, though it may not have
// closed yet: its output is being flushed, or its protocol's closing handshake is under way.
func ends(err error) bool {
	return errors.Is(err, loop.ErrClosed) || errors.Is(err, loop.ErrSlowConsumer) || errors.Is(err, codec.ErrClosed)
}

// takeOldest removes the oldest message of the backlog.
func (k *Link) takeOldest() (msg []byte) {
	msg, k.backlog[0] = k.backlog[0], nil
	k.backlog = k.backlog[1:]
	return msg
}

// Stats returns the Link's numbers.
func (k *Link) Stats() LinkStats {
	in.Check(k.loop, "handler.Link.Stats")
	s := k.stats
	s.Connected, s.Backlog = k.conn != nil, len(k.backlog)
	return s
}

// Stop closes the connection, if there is one, and stops dialing. State is called when it has
// closed.
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
	k.stats.Dropped += uint64(len(k.backlog))
	k.backlog = nil
	if !k.live {
		close(k.ended)
	} else if k.conn != nil {
		k.conn.Close()
	}
}

// Shutdown is Stop for goroutines other than a loop's; on a loop it panics. It waits until the
// connection has closed, and its callbacks, the done functions of its calls, and State have
// returned; when ctx is done it returns ctx's error.
func (k *Link) Shutdown(ctx context.Context) error {
	offLoop("Link.Shutdown")
	k.loop.Post(k.Stop) // a loop that ends stops its Links
	return await(ctx, k.ended)
}

func (k *Link) dial() {
	k.stats.Dials++
	k.cancel = k.cfg.Dialer.Dial(k.loop, k.cfg.Addr, k.opened)
}

// opened is the Dialer's callback.
func (k *Link) opened(c *loop.Conn, err error) loop.Handler {
	k.cancel = nil
	if err != nil {
		k.failed(err)
		return nil
	}
	k.live = true
	in.Pin(c, true) // requests that the drain waits for may need it
	c.AfterClose(k.closed)
	h := k.cfg.Accept(c)
	if h == nil || k.stopped {
		return nil // then c closes, refused
	}
	k.conn, k.since = c, k.loop.Now()
	k.stats.Opened++
	k.sendBacklog()
	k.cfg.State(c, nil)
	return h
}

// sendBacklog sends the backlog as fast as the peer takes it: above loop.Server.Limits.MaxOutbound
// the connection would close. A message that the codec refuses is dropped, or it would hold back
// all after it. A hook of the connection, which Send may call, may send more by the Link, or stop
// it.
func (k *Link) sendBacklog() {
	for len(k.backlog) > 0 && k.conn != nil && in.WhenPending(k.conn, in.MaxOutbound(k.conn)/2, k.sendBacklog) {
		c, msg := k.conn, k.takeOldest()
		switch err := c.Send(msg); {
		case err == nil:
		case ends(err) && !k.stopped: // the next connection gets it
			k.backlog = slices.Insert(k.backlog, 0, msg)
			return
		default:
			k.stats.Dropped++
			warnSeldom(c, err, "a kept message cannot be sent")
		}
	}
}

// closed is called when a connection has closed, or Accept has refused it.
func (k *Link) closed(err error) {
	if k.conn != nil && k.loop.Now().Sub(k.since) >= k.cfg.Max {
		k.wait = k.cfg.Min
	}
	k.conn, k.live = nil, false
	err = cmp.Or(err, loop.ErrClosed)
	if ended := func() { close(k.ended) }; k.stopped && k.loop.Post(ended) != nil { // after what ends with c
		ended()
	}
	k.failed(err)
}

// failed reports why there is no connection, and dials again later, even if State panics. It
// ignores err, as loop.ErrServerClosed may be another server's, passed on by a handler.
func (k *Link) failed(err error) {
	if !k.stopped && !in.Draining(k.loop) {
		d := time.Duration(rand.Int64N(int64(k.wait))) + 1
		k.wait = min(2*k.wait, k.cfg.Max)
		k.timer = k.loop.AfterFunc(d, k.dial)
	}
	k.cfg.State(nil, err)
}

// loopEnds stops the Link when its loop ends.
func (k *Link) loopEnds() { k.Stop() }
