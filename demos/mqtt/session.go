package main

import (
	"bytes"
	"cmp"
	"slices"
	"time"

	"github.com/loopwheel/loopwheel/codec/mqtt"
	"github.com/loopwheel/loopwheel/loop"
)

// never is the session expiry interval of a session that does not expire.
const never = 1<<32 - 1

// session is what the broker keeps for a client identifier. It belongs to the loop of its last
// connection, in whose shard it is, and moves when the client comes back on another loop.
type session struct {
	id     string
	client *client // nil: not connected
	expiry uint32  // seconds after the connection's end
	subs   map[string]*subscription
	most   int // the most subscriptions that it had: see shrink
	weight int // of the subscriptions
	cost   int // see budget; without messages and levels of trees

	lastID   uint16
	turn     uint64
	inflight map[uint16]*outgoing // sent, and not acknowledged
	flying   int                  // bytes of their payloads
	queue    []*outgoing          // QoS 1 and 2 that wait for the client, or for an acknowledgement
	queued   int                  // bytes of their payloads
	received map[uint16]int       // inbound QoS 2 without PUBREL: how often the connection has sent each

	will      *will // nil: none, or published
	willTimer loop.Timer
	willDue   time.Time // zero: the timer does not run
	endTimer  loop.Timer
	ends      time.Time
	extra     int // how much longer than allowed the queue may be: it came so from another process

	// had is how far the session had got with each shard when it came here from another one, as long
	// as this shard is behind that: what it delivers until then the session has had.
	had []uint64

	mark uint64 // the last delivery that selected this session
	hit  int    // its place among the hits of that delivery
}

// newSession makes a session of a shard.
func (sh *shard) newSession(id string) *session {
	s := &session{id: id, subs: map[string]*subscription{}, inflight: map[uint16]*outgoing{}, received: map[uint16]int{}}
	s.charge(&sh.budget, sessionCost+len(id))
	sh.sessions[id] = s
	sh.b.counts.sessions.Add(1)
	return s
}

// deliver sends a message to the client, now or when it can be sent. A message of QoS 0 is dropped if
// the client is away or reads too slowly. Those of QoS 1 and 2 wait; a client with too many of them
// is disconnected, and of a client that is away the newest are dropped.
func (s *session) deliver(sh *shard, out *outgoing) {
	c := s.client
	if out.o.qos == 0 {
		switch {
		case c == nil:
		case c.c.Pending() > sh.b.cfg.MaxPending:
			sh.dropped++
		default:
			c.send(sh, out)
		}
		return
	}
	noRoom := sh.budget.full()
	if c != nil {
		noRoom = sh.budget.exhausted()
	}
	if c != nil && len(s.queue) == 0 && s.ready() && !noRoom {
		out.keep(&sh.budget)
		s.start(sh, out)
		return
	}
	if len(s.queue) < sh.b.cfg.MaxQueue+s.extra && s.queued < sh.b.cfg.MaxQueueBytes && !noRoom {
		out.keep(&sh.budget)
		s.queue = append(s.queue, out)
		s.queued += out.size()
		return
	}
	sh.dropped++
	if c != nil {
		c.end(mqtt.QuotaExceeded)
	}
}

// ready reports whether the client may be sent one more message of QoS 1 or 2.
func (s *session) ready() bool {
	c := s.client
	return !c.over && len(s.inflight) < c.receiveMax && max(s.flying, c.c.Pending()) <= c.sh.b.cfg.MaxPending
}

// start sends a message of QoS 1 or 2 for the first time, unless it has expired.
func (s *session) start(sh *shard, out *outgoing) {
	for {
		s.lastID++
		if _, used := s.inflight[s.lastID]; s.lastID != 0 && !used {
			break
		}
	}
	out.id = s.lastID
	s.turn++
	out.turn = s.turn
	s.inflight[out.id] = out
	s.flying += out.size()
	if out.m.expired(sh.l.Now()) || !s.client.send(sh, out) {
		s.landed(sh, out)
	}
}

// landed forgets a message that was under way.
func (s *session) landed(sh *shard, out *outgoing) {
	out.drop(&sh.budget)
	s.flying -= out.size()
	delete(s.inflight, out.id)
}

// pump sends queued messages, as many as the client takes.
func (s *session) pump(sh *shard) {
	n := 0
	for n < len(s.queue) && s.client != nil && s.ready() {
		out := s.queue[n]
		s.queue[n] = nil
		s.queued = max(0, s.queued-out.size()) // what another process has queued was not counted
		n++
		if out.o.qos > 0 {
			s.start(sh, out)
			continue
		}
		if !out.m.expired(sh.l.Now()) {
			s.client.send(sh, out)
		}
		out.drop(&sh.budget)
	}
	if n == len(s.queue) {
		s.queue, s.extra = nil, 0
	} else {
		s.queue = s.queue[n:]
	}
}

// resume sends again what the client has not acknowledged, in the order of the first time.
func (s *session) resume(sh *shard) {
	again := make([]*outgoing, 0, len(s.inflight))
	for _, out := range s.inflight {
		again = append(again, out)
	}
	slices.SortFunc(again, func(a, b *outgoing) int { return cmp.Compare(a.turn, b.turn) })
	for _, out := range again {
		if out.rel {
			s.client.ack(mqtt.PUBREL, out.id, mqtt.Success)
		} else if !s.client.send(sh, out) {
			s.landed(sh, out)
		}
	}
	s.pump(sh)
}

// stopTimers stops the timers of the loop that the session is on, and forgets them: on another loop
// they would be foreign.
func (s *session) stopTimers() {
	s.willTimer.Stop()
	s.endTimer.Stop()
	s.willTimer, s.endTimer = loop.Timer{}, loop.Timer{}
	s.willDue, s.ends = time.Time{}, time.Time{}
}

// attach makes c the session's client.
func (s *session) attach(c *client) {
	s.stopTimers()
	s.client, c.s = c, s
	for id := range s.received {
		s.received[id] = 0
	}
}

// detach ends the part of the session's client. The session stays for as long as it was asked to.
// leftWell: the client has sent a DISCONNECT that gives up its will. taken: another connection of
// the same client goes on with the session.
func (s *session) detach(sh *shard, leftWell, taken bool) {
	s.client.s = nil
	s.client = nil
	s.inflight, _ = shrink(s.inflight, sh.b.cfg.MaxInflight)
	s.received, _ = shrink(s.received, sh.b.cfg.MaxInflight)
	s.queue = slices.Clone(s.queue)
	if leftWell {
		s.setWill(sh, nil)
	}
	switch {
	case s.will == nil:
	case s.will.delay == 0:
		s.publishWill(sh)
	case !taken:
		s.startWill(sh)
	}
	if !taken {
		s.startEnd(sh)
	}
}

// will is the message to publish when a connection ends without a DISCONNECT.
type will struct {
	delay uint32 // seconds; the end of the session comes before it
	w     mqtt.Will
}

// newWill copies the will of a CONNECT, which may be nil.
func newWill(w *mqtt.Will) *will {
	if w == nil {
		return nil
	}
	kept := &will{w: mqtt.Will{QoS: w.QoS, Retain: w.Retain}}
	kept.delay, _ = w.Properties.Number(mqtt.WillDelay)
	kept.w.Topic, kept.w.Payload, kept.w.Properties = bytes.Clone(w.Topic), bytes.Clone(w.Payload), bytes.Clone(w.Properties)
	return kept
}

func (s *session) setWill(sh *shard, w *will) {
	s.charge(&sh.budget, w.cost()-s.will.cost())
	s.will = w
}

func (s *session) startWill(sh *shard) {
	if s.will != nil && s.will.delay < s.expiry {
		s.willIn(sh, time.Duration(s.will.delay)*time.Second)
	}
}

func (s *session) willIn(sh *shard, d time.Duration) {
	s.willDue = sh.l.Now().Add(d)
	s.willTimer = sh.l.AfterFunc(max(d, 0), func() { sh.unlessFrozen(func() { s.publishWill(sh) }) })
}

func (s *session) publishWill(sh *shard) {
	if s.will == nil {
		return
	}
	w := &s.will.w
	s.setWill(sh, nil)
	p := mqtt.Publish{QoS: w.QoS, Retain: w.Retain, Properties: w.Properties, Payload: w.Payload}
	if sh.mayPublish(string(w.Topic), len(w.Payload)+len(w.Properties), w.Retain) != mqtt.Success {
		p.Retain = false // since CONNECT other messages have taken the room
	}
	sh.publish(newMessage(string(w.Topic), &p, "", sh.l.Now()))
}

func (s *session) startEnd(sh *shard) {
	switch s.expiry {
	case 0:
		sh.end(s)
	case never:
	default:
		s.endIn(sh, time.Duration(s.expiry)*time.Second)
	}
}

func (s *session) endIn(sh *shard, d time.Duration) {
	s.ends = sh.l.Now().Add(d)
	s.endTimer = sh.l.AfterFunc(max(d, 0), func() { sh.unlessFrozen(func() { sh.end(s) }) })
}
