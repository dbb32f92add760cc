package main

import (
	"bytes"
	"errors"
	"strings"
	"time"

	"github.com/miekg/dns"
	"github.com/rs/zerolog"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/loop"
)

const (
	// staleTTL is what a stale answer lives for (RFC 8767, section 4).
	staleTTL = 30

	// maxWaiting is how many clients may wait for one answer.
	maxWaiting = 1000

	// maxPending is how many different questions a loop has upstream, maxAsked of them at each.
	maxPending = 10_000
)

// A forwarder is what one loop has: a cache, the upstreams, and the questions that are under way.
type forwarder struct {
	o       *options
	loop    *loop.Loop
	cache   cache
	udp     []*udpUpstream
	tcp     []*tcpUpstream
	pending map[string]*lookup
	key     []byte // used again and again
	out     []byte
	next    int
}

// newServer returns the server that o describes.
func newServer(o *options, log zerolog.Logger) *loop.Server {
	forwarders := loop.NewLocal(func(l *loop.Loop) forwarder { return newForwarder(o, l) })
	accept := func(c *loop.Conn, s *stream) loop.Handler {
		f := forwarders.Get(c.Loop())
		return loop.HandlerFunc(func(c *loop.Conn, msg []byte) error { return f.serve(c, s, msg) })
	}
	return &loop.Server{
		Addr:        o.addr,
		Accept:      func(c *loop.Conn) loop.Handler { return accept(c, nil) },
		IdleTimeout: 10 * time.Second,
		MaxSessions: o.sessions,
		OnStart:     func(l *loop.Loop) { forwarders.Get(l) },
		NumLoops:    o.loops,
		Logger:      log,
		Listeners: []loop.Listener{{
			Addr:   strings.Replace(o.addr, "udp", "tcp", 1),
			Accept: func(c *loop.Conn) loop.Handler { return accept(c, newStream(c)) },
			Codec:  codec.Length{Size: 2},
		}},
	}
}

// A stream is what is known of a client that asks over TCP. One that ends its output behind its
// questions still gets all answers.
type stream struct {
	asked int // questions that are under way
	ended bool
}

func newStream(c *loop.Conn) *stream {
	s := &stream{}
	c.OnEOF(func() { s.ended = true; s.closeIfDone(c) })
	return s
}

func (s *stream) closeIfDone(c *loop.Conn) {
	if s.ended && s.asked == 0 {
		c.Close()
	}
}

func newForwarder(o *options, l *loop.Loop) forwarder {
	f := forwarder{o: o, loop: l, pending: make(map[string]*lookup),
		cache: cache{loop: l, entries: make(map[string]*entry), max: o.cache, maxBytes: o.cacheBytes, stale: o.stale,
			failing: make(map[string]int)}}
	for _, addr := range o.upstreams {
		f.udp = append(f.udp, newUDPUpstream(l, addr, o.timeout))
		f.tcp = append(f.tcp, newTCPUpstream(l, addr, o.timeout))
	}
	return f
}

// serve answers a query from the cache, or asks upstream. s is nil for one by UDP, whose answer is
// as long as the client says.
func (f *forwarder) serve(c *loop.Conn, s *stream, msg []byte) error {
	q, key, err := parseQuery(msg, f.key)
	f.key = key
	if err != nil {
		return f.refuse(c, &q, err, s != nil)
	}
	if s != nil {
		q.size = dns.MaxMsgSize
	}
	if e, age := f.cache.fresh(key); e != nil {
		q.key = string(key[len(key)-1:])
		return f.reply(c, &q, &e.answer, age, 0)
	}
	code, failing := f.cache.isFailing(key)
	if q.key = string(key); failing {
		return f.replyFailing(c, &q, code)
	}
	f.lookUp(c, s, q)
	return nil
}

// refuse answers what is refused. Of a stream with what has no question that can be read, what
// follows cannot be trusted either.
func (f *forwarder) refuse(c *loop.Conn, q *query, err error, stream bool) error {
	code, answered := errors.AsType[refusal](err)
	if answered {
		f.out = appendEmpty(f.out[:0], q, int(code), false)
		if err := c.Send(f.out); err != nil {
			return err
		}
	}
	if stream && (!answered || code == dns.RcodeFormatError && q.question == nil) {
		return err
	}
	return nil
}

// replyFailing gives what was true a while ago (RFC 8767), or a failure.
func (f *forwarder) replyFailing(c *loop.Conn, q *query, code int) error {
	if e := f.cache.any(q.key); e != nil {
		return f.reply(c, q, &e.answer, 0, staleTTL)
	}
	f.out = appendEmpty(f.out[:0], q, code, false)
	return c.Send(f.out)
}

// reply sends an answer, or tells the client to ask by TCP.
func (f *forwarder) reply(c *loop.Conn, q *query, a *answer, age time.Duration, stale uint32) error {
	f.out = appendAnswer(f.out[:0], a, q, age, stale)
	if len(f.out) > q.size {
		f.out = appendEmpty(f.out[:0], q, a.rcode(), true)
	}
	return c.Send(f.out)
}

// A lookup is a question that is under way, and who waits for the answer.
type lookup struct {
	f       *forwarder
	q       query
	clients []waiting
	first   int // the upstream that is asked first
	tries   int
	failed  *answer // the last that was one, but told of a failure
	refused []bool  // by upstream: it has answered what another try there will not better
	asked   bool    // somebody
	plain   bool    // the one that is asked now knows no EDNS
	cut     bool    // an upstream has an answer that is too long for UDP, and does not speak TCP
}

type waiting struct {
	ref    loop.Ref
	stream *stream // nil: by UDP
	q      query
}

// tell has reply run, if the client is still there.
func (w *waiting) tell(reply func(c *loop.Conn)) {
	_ = w.ref.Tell(func(c *loop.Conn) {
		reply(c)
		if w.stream != nil {
			w.stream.asked--
			w.stream.closeIfDone(c)
		}
	})
}

// lookUp asks upstream, unless somebody else does already.
func (f *forwarder) lookUp(c *loop.Conn, s *stream, q query) {
	q.question = bytes.Clone(q.question)
	k := f.pending[q.key]
	w := waiting{c.Ref(), s, q}
	switch {
	case k != nil && len(k.clients) >= maxWaiting || k == nil && len(f.pending) >= maxPending:
		f.out = appendEmpty(f.out[:0], &q, dns.RcodeServerFailure, false)
		_ = c.Send(f.out)
		return
	case k == nil:
		k = &lookup{f: f, q: q, first: f.next, refused: make([]bool, len(f.udp))}
	}
	if s != nil {
		s.asked++
	}
	if k.clients = append(k.clients, w); len(k.clients) > 1 {
		return
	}
	f.pending[q.key] = k
	k.ask()
}

// ask tries one upstream after the other, but for those that have refused.
func (k *lookup) ask() {
	for k.plain = false; k.tries < k.f.o.retries*len(k.f.udp); {
		k.tries++
		if !k.refused[k.turn()] && k.askThis() {
			return
		}
	}
	k.fail()
}

// askThis asks the upstream whose turn it is, and reports whether it could.
func (k *lookup) askThis() bool {
	err := k.f.udp[k.turn()].ask(&k.q, k.plain, k.f.o.timeout, k.answered)
	k.asked = k.asked || err == nil
	return err == nil
}

// turn returns which upstream is asked in this try.
func (k *lookup) turn() int { return (k.first + k.tries - 1) % len(k.f.udp) }

// answered is given an answer, or why there is none.
func (k *lookup) answered(msg []byte, err error) {
	if err == errOtherCase || err == nil && isCut(msg) {
		k.askTCP(err == nil)
		return
	}
	if err == nil && !k.plain && knowsNoEDNS(msg) {
		if k.plain = true; !k.askThis() {
			k.ask()
		}
		return
	}
	var a answer
	if err == nil {
		a, err = parseAnswer(msg, k.q.question)
	}
	if err != nil && !isBare(msg) && k.f.next == k.turn() { // a failure may be of one name only
		k.f.next = (k.f.next + 1) % len(k.f.udp) // somebody else first, from now on
	}
	if err != nil {
		k.ask()
		return
	}
	if a.isFailure() {
		k.failed = &a
		k.refused[k.turn()] = a.rcode() != dns.RcodeServerFailure // that may pass
		k.ask()
		return
	}
	k.done(&a)
	k.f.cache.put(k.q.key, a)
}

// askTCP asks for what is too long for UDP, or must not be believed there.
func (k *lookup) askTCP(tooLong bool) {
	u := k.f.tcp[k.turn()]
	u.whenOpen(func() {
		if u.ask(&k.q, k.plain, k.f.o.timeout, k.answeredTCP) != nil {
			k.cut = k.cut || tooLong
			k.ask()
		}
	})
}

func (k *lookup) answeredTCP(msg []byte, err error) {
	if err == nil && isCut(msg) { // or it would be asked by TCP again and again
		err = errMessage
	}
	k.answered(msg, err)
}

// done gives all who wait their answer.
func (k *lookup) done(a *answer) {
	delete(k.f.pending, k.q.key)
	for _, w := range k.clients {
		w.tell(func(c *loop.Conn) { _ = k.f.reply(c, &w.q, a, 0, 0) })
	}
}

// fail gives those who wait what there is without an answer: what was once known, or the failure
// that somebody told of.
func (k *lookup) fail() {
	delete(k.f.pending, k.q.key)
	code := dns.RcodeServerFailure
	if k.failed != nil {
		code = k.failed.rcode()
	}
	if k.cut && k.failed == nil && k.f.cache.any(k.q.key) == nil {
		k.failCut()
		return
	}
	if k.asked { // otherwise there is too much to do
		k.f.cache.failed(k.q.key, code)
	}
	if k.failed != nil && k.f.cache.any(k.q.key) == nil {
		k.done(k.failed)
		return
	}
	for _, w := range k.clients {
		w.tell(func(c *loop.Conn) { _ = k.f.replyFailing(c, &w.q, code) })
	}
}

// failCut tells those who wait that the answer is too long for UDP. That is all that is known of
// it, as no upstream answers by TCP: clients may ask again that way.
func (k *lookup) failCut() {
	for _, w := range k.clients {
		w.tell(func(c *loop.Conn) {
			code, cut := dns.RcodeSuccess, true
			if w.stream != nil {
				code, cut = dns.RcodeServerFailure, false
			}
			k.f.out = appendEmpty(k.f.out[:0], &w.q, code, cut)
			_ = c.Send(k.f.out)
		})
	}
}
