package tlsconn

import (
	"bytes"
	"container/list"
	"context"
	"crypto/fips140"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/loopwheel/loopwheel/loop/internal/tlsrecord"
)

var (
	// ErrNoInput is why a connection failed whose peer has ended it before its first byte, as
	// health checks do. It does not count as a handshake that failed.
	ErrNoInput = errors.New("the peer ended the connection before its first byte")

	// ErrTooManyHandshakes is the reason of a handshake that had waited longest when there were too
	// many.
	ErrTooManyHandshakes = errors.New("too many handshakes wait for their clients, and this one longest")

	errGoexit = errors.New("tls: a hook of the tls.Config called runtime.Goexit")
)

// A handshake is what a Conn needs until it is open. It goes to and fro:
//
//	on the loop                             on the goroutine
//	Start, tryToWork, work ─── go run ──▶   shakeHands: crypto/tls, which reads by transport.Read
//	waits                  ◀─── Post ────   next: no input is left; it blocks
//	Readable, tryToWork, work ─ input ──▶   next returns, and crypto/tls goes on
//	finished               ◀─── Post ────   run ends
type handshake struct {
	cfg    *tls.Config
	client bool
	before int // bytes of plain text that go out before Start

	// The goroutine is given input when it waits. It ends with the context, which is also that of
	// the hooks. It is nil before the goroutine begins.
	input  chan []byte
	given  []byte // the input that it may be reading, of the Pool
	ctx    context.Context
	cancel context.CancelFunc

	keys          keyLog
	result        protocol
	out           []byte        // what the goroutine has written
	handed        int           // how much of it has gone out
	releaseWorker func()        // gives back what the goroutine has of Workers
	err           error         // how it ended
	place         *list.Element // among those that wait for their peers
}

// Start begins the handshake, with the input that has come so far, unless it has begun, or plain
// text is left that goes out before.
func (c *Conn) Start() {
	switch {
	case c.state != starting || c.hs.before > 0:
	case c.hs.client:
		c.work()
	default:
		c.setState(hello)
		c.tryToWork()
	}
	c.goOnReading()
}

// tryToWork has the goroutine compute if there is a record for it. With the first one a server's
// handshake begins.
func (c *Conn) tryToWork() {
	if wholeRecords(c.in) > 0 {
		if c.state == hello {
			c.splitHello()
		}
		c.work()
	}
}

// work has the goroutine compute, with the input that there is.
func (c *Conn) work() {
	h := c.hs
	begins := h.ctx == nil
	if begins {
		h.input = make(chan []byte, 1)
		h.ctx, h.cancel = context.WithCancel(context.Background())
	}
	c.setState(computing)
	if h.given = c.take(); len(h.given) > 0 {
		h.input <- h.given // has room
	}
	if begins {
		go c.run(h)
	}
}

// run is what the goroutine does.
func (c *Conn) run(h *handshake) {
	h.err = errGoexit
	defer func() {
		h.releaseWorker()
		c.shared.cfg.Post(c.finished)
	}()
	defer c.shared.rescue(&h.err)
	if h.releaseWorker = c.shared.cfg.Workers.begin(h.ctx); h.ctx.Err() == nil {
		h.err = explain(c.shakeHands(h))
	}
}

// shakeHands is called by the goroutine, as hooks run in it.
func (c *Conn) shakeHands(h *handshake) error {
	cfg := h.config(c.shared.cfg.CryptoTLS)
	var tc *tls.Conn
	if h.client {
		tc = tls.Client((*transport)(c), cfg)
	} else {
		tc = tls.Server((*transport)(c), cfg)
	}
	defer func() {
		clear(h.keys.client)
		clear(h.keys.server)
	}()
	ctx := h.ctx
	if cfg.GetConfigForClient == nil && cfg.GetCertificate == nil && cfg.GetClientCertificate == nil && cfg.GetEncryptedClientHelloKeys == nil {
		ctx = context.Background() // no hook sees it, and for others crypto/tls starts a goroutine
	}
	if err := tc.HandshakeContext(ctx); err != nil {
		return err
	}
	h.result = h.takeOver(tc)
	return nil
}

// next is called by the goroutine for input. It waits if there is none. False: there will be none.
func (c *Conn) next(h *handshake) bool {
	select {
	case c.cur = <-h.input:
		return true
	default:
	}
	h.releaseWorker()
	h.releaseWorker = func() {}
	if !c.shared.cfg.Post(c.waits) {
		return false
	}
	select {
	case c.cur = <-h.input:
	case <-h.ctx.Done():
		return false
	}
	h.releaseWorker = c.shared.cfg.Workers.begin(h.ctx)
	return h.ctx.Err() == nil
}

// waits is called on the loop when the goroutine waits for the peer.
func (c *Conn) waits() {
	c.release(&c.hs.given)
	if c.state != computing { // aborted meanwhile
		return
	}
	c.handOut()
	c.setState(waiting)
	switch l := c.shared; {
	case wholeRecords(c.in) > 0:
		c.work()
	case c.rawEnd != nil:
		c.fail(unexpected(c.rawEnd), false)
	case l.waiting.Len() > l.cfg.MaxWaiting:
		l.waiting.Front().Value.(*Conn).fail(ErrTooManyHandshakes, false)
	}
	c.goOnReading()
}

// finished is called on the loop when the goroutine has ended.
func (c *Conn) finished() {
	h := c.hs
	h.cancel()
	defer c.release(&h.given)
	if c.state != computing { // aborted meanwhile
		h.result.erase()
		return
	}
	c.handOut()
	if h.err != nil {
		c.fail(h.err, false)
		return
	}
	if len(c.cur) > 0 { // what came right after Finished
		c.giveBack(c.cur)
	}
	c.protocol = h.result
	c.cur, c.record, c.dataOwed, c.hs = nil, nil, 0, nil
	if c.setState(open); c.records != nil {
		c.crypt() // its handshake has made the AEADs
	}
	c.shared.Done++
	if c.host.HandshakeDone(); c.state != open {
		return
	}
	if c.finQueued {
		c.CloseWrite()
	}
	c.process()
	c.goOnReading()
}

// handOut sends what the handshake has written.
func (c *Conn) handOut() {
	c.out = c.shared.extend(c.out, c.hs.out[c.hs.handed:])
	c.hs.handed = len(c.hs.out)
	c.flush() // of an error reading will tell
}

// handshakeEnded is called when the raw input has ended. While the goroutine computes, that may
// come after the rest of the handshake and all that the peer had to say.
func (c *Conn) handshakeEnded(err error) {
	if c.state == computing && err == io.EOF && c.sock.KeepWriting() {
		c.rawEnd = err
		return
	}
	c.lost = true
	if c.state <= hello && len(c.in) == 0 {
		c.abandon(fmt.Errorf("%w: %w", ErrNoInput, unexpected(err)), true)
		return
	}
	c.fail(unexpected(err), true)
}

// Abort fails the handshake with err, if it is not done. Hard: the peer is reset, and gets no
// alert. So it is, too, while the output belongs to the goroutine, or is not all of the plain text.
func (c *Conn) Abort(err error, hard bool) {
	if c.state < open {
		c.fail(err, hard || c.state == computing || c.hs.before > 0)
	}
}

// fail ends a connection that is not open yet.
func (c *Conn) fail(err error, hard bool) {
	c.shared.Failed++
	c.abandon(err, hard)
}

// abandon is fail for a handshake that does not count.
func (c *Conn) abandon(err error, hard bool) {
	if c.hs.ctx != nil {
		c.hs.cancel()
	}
	c.closeAfterAlert(hard)
	c.host.HandshakeFailed(fmt.Errorf("TLS handshake: %w", err))
}

// explain says what a peer speaks that does not begin with a handshake. The error may be a hook's,
// whose methods are user code.
func explain(err error) error {
	header, ok := errors.AsType[tls.RecordHeaderError](err)
	if !ok {
		return err
	}
	switch text := string(header.RecordHeader[:]); text {
	case "GET /", "HEAD ", "POST ", "PUT /", "OPTIO", "DELET", "PATCH", "CONNE", "TRACE":
		return errors.New("the client speaks plain HTTP")
	case "PROXY", "\r\n\r\n\x00":
		return errors.New("the client sends a header of the PROXY protocol, and nobody expects it")
	}
	return errors.New(header.Msg)
}

// Workers bound how many handshakes compute at the same time, beside the loops. The others queue,
// in order.
//
// A handshake that takes long is taken to block in a user's hook, and not to compute: it gives up
// its slot to the next one. The number of such slow handshakes is bounded as well.
type Workers struct {
	computing chan struct{} // has an element for each handshake that computes
	slow      chan struct{} // and for each slow one
	patience  time.Duration // after which a handshake counts as slow
}

// NewWorkers returns Workers that let at most n handshakes compute at once, and at most maxSlow be
// slow.
func NewWorkers(n, maxSlow int) *Workers {
	return &Workers{make(chan struct{}, n), make(chan struct{}, maxSlow), 200 * time.Millisecond}
}

// begin waits until a handshake may compute, or its context ends. The function that it returns must
// be called when it has computed.
func (w *Workers) begin(ctx context.Context) (end func()) {
	select {
	case w.computing <- struct{}{}:
	case <-ctx.Done():
		return func() {}
	}
	timer := time.AfterFunc(w.patience, func() {
		w.slow <- struct{}{} // waits if there are too many
		<-w.computing
	})
	return func() {
		if timer.Stop() {
			<-w.computing
		} else { // the timer's function takes from computing, now or soon
			<-w.slow
		}
	}
}

// Of a connection of TLS 1.3 crypto/tls only has the handshake. It tells the two secrets of
// application data by the key log, and with them package tlsrecord goes on. The tls.Conn is
// dropped. crypto/tls keeps connections of TLS 1.2; clients with a ClientSessionCache, as tickets
// need a secret that is in no key log; and all in FIPS 140-3 mode, whose module knows nothing of
// tlsrecord.

// A keyLog is the KeyLogWriter of one handshake. The goroutine of the handshake owns it.
type keyLog struct {
	user           io.Writer // the user's, or nil
	client, server []byte    // application_traffic_secret_0 of RFC 8446, section 7.1
	fullRecords    bool      // DynamicRecordSizingDisabled, which goes with it
}

// Write implements io.Writer. A line is a label, the client's random number and a secret (RFC
// 9850).
func (k *keyLog) Write(line []byte) (int, error) {
	label, rest, _ := bytes.Cut(bytes.TrimSuffix(line, []byte("\n")), []byte(" "))
	_, secret, _ := bytes.Cut(rest, []byte(" "))
	switch string(label) {
	case "CLIENT_TRAFFIC_SECRET_0":
		k.client, _ = hex.AppendDecode(nil, secret)
	case "SERVER_TRAFFIC_SECRET_0":
		k.server, _ = hex.AppendDecode(nil, secret)
	}
	if k.user != nil {
		return k.user.Write(line)
	}
	return len(line), nil
}

// config returns what the handshake is given: cfg, or a copy with a key log of its own.
func (h *handshake) config(cryptoTLS bool) *tls.Config {
	cfg := h.cfg
	if cryptoTLS || h.client && cfg.ClientSessionCache != nil || fips140.Enabled() {
		return cfg
	}
	if h.client {
		return h.logged(cfg)
	}
	// This has cfg make the ticket keys that it makes itself, and replace old ones. So the copies
	// for all handshakes have the same.
	_, _ = cfg.DecryptTicket(nil, tls.ConnectionState{})
	own := h.logged(cfg)
	if hook := cfg.GetConfigForClient; hook != nil {
		own.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			cfg, err := hook(hello)
			if cfg == nil || err != nil {
				return cfg, err
			}
			return h.logged(cfg), nil
		}
	}
	return own
}

// logged returns a copy of cfg that has the key log of h.
func (h *handshake) logged(cfg *tls.Config) *tls.Config {
	own := cfg.Clone()
	own.KeyLogWriter = &h.keys
	h.keys.user, h.keys.fullRecords = cfg.KeyLogWriter, cfg.DynamicRecordSizingDisabled
	return own
}

// A protocol is what carries a connection on after its handshake.
type protocol struct {
	tls     *tls.Conn            // nil with records
	records *tlsrecord.Conn      // nil with tls
	settled *tls.ConnectionState // with records
}

// takeOver returns tlsrecord in place of tc, which has finished the handshake, if that is possible.
func (h *handshake) takeOver(tc *tls.Conn) protocol {
	k := &h.keys
	state := tc.ConnectionState()
	if state.Version != tls.VersionTLS13 || k.client == nil {
		return protocol{tls: tc}
	}
	read, write := k.client, k.server
	if h.client {
		read, write = write, read
	}
	records, err := tlsrecord.New(h.client, state.CipherSuite, read, write)
	if err != nil {
		return protocol{tls: tc} // a cipher suite that crypto/tls has learnt since
	}
	if k.fullRecords {
		records.FullRecords()
	}
	if !h.client {
		records.Sent(h.out) // a client has sent nothing under the new key
	}
	return protocol{records: records, settled: &state}
}

// crypt returns the records, to open or seal some.
func (c *Conn) crypt() *tlsrecord.Conn {
	if c.place == 0 {
		c.shared.wake(c)
	}
	return c.records
}

// erase ends the use of secrets.
func (p protocol) erase() {
	if p.records != nil {
		p.records.Erase()
	}
}
