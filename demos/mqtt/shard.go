package main

import (
	"hash/maphash"
	"slices"

	"github.com/loopwheel/loopwheel/codec/mqtt"
	"github.com/loopwheel/loopwheel/loop"
)

// shard is the part of the broker that belongs to one loop: the sessions of its clients, with their
// subscriptions, a copy of the retained messages, and, for the client identifiers and shared
// subscriptions that hash to it, who has them. Shards share nothing. What one has to say to another
// is posted to its loop.
//
// A message crosses to each other loop once, together with all that the turn publishes (see
// loop.Loop.PostFrom). Each shard counts what it publishes (message.seq) and remembers how far it has got with
// each other shard (seen), which makes the move of a session exact: see claim.
type shard struct {
	b     *broker
	l     *loop.Loop
	index int

	budget   budget
	sessions map[string]*session
	subs     tree
	retained retained

	// The directory: of client identifiers that hash to this shard, the shard of the session.
	owners map[string]*owner
	groups map[string]*group // shared subscriptions that hash to this shard, by name and filter

	seen     []uint64   // for each shard, the last seq that was delivered here; this shard's own counts them
	waiting  []waiting  // sessions that leave when seen has got so far
	arrivals []*arrival // sessions on their way to this shard
	log      []*message // delivered since the first of them was asked for
	logged   int        // the number of the message behind the log

	ready  bool     // the state of the process before is here
	frozen bool     // the state is on its way to the next process
	late   []func() // what timers would have done meanwhile
	held   []func()

	delivery uint64
	hits     []hit
	wire     wireCache
	scratch  outgoing
	buf      []byte // for packets
	dropped  uint64
	sent     uint64
	swept    uint64 // the newest stamp at the last tick
}

// crossing is a message for another shard, and of a shared subscription the member that gets it.
type crossing struct {
	m  *message
	to *member
}

// owner says which shard has the session of a client identifier.
type owner struct {
	shard  int
	moving bool
	queue  []func(o *owner) // claims that wait for the end of a move
}

// arrival is a session on its way to a shard.
type arrival struct {
	from int // the number of the first logged message that may be for it
}

// waiting is a session on its way from a shard.
type waiting struct {
	s     *session
	until []uint64
	to    int
	then  func(s *session, seen []uint64)
}

var seed = maphash.MakeSeed()

func (b *broker) home(key string) int { return int(maphash.String(seed, key) % uint64(len(b.shards))) }

// at runs f on the loop of shard i: at once, if that is this one.
func (sh *shard) at(i int, f func(other *shard)) {
	if i == sh.index {
		f(sh)
		return
	}
	other := sh.b.shards[i]
	if err := other.l.Post(func() { f(other) }); err != nil {
		return // the server has ended, with all sessions
	}
}

// publish delivers a message here and has it cross to the other shards. It returns false if it knows
// that there is no subscriber.
func (sh *shard) publish(m *message) bool {
	sh.seen[sh.index]++
	m.seq = sh.seen[sh.index]
	if m.retain {
		m.stamp = sh.b.stamp.Add(1)
	}
	m.origin = sh.index
	for i := range sh.b.shards {
		if i != sh.index {
			sh.cross(i, crossing{m: m})
		}
	}
	return sh.deliver(m) || len(sh.b.shards) > 1 && sh.b.counts.subscriptions.Load() > 0
}

// cross sends a message to another shard. What one turn sends crosses together.
func (sh *shard) cross(i int, c crossing) {
	other := sh.b.shards[i]
	if err := other.l.PostFrom(sh.l, func() { other.receive(c) }); err != nil {
		return // the server has ended, with all sessions
	}
}

// receive delivers what another shard has sent.
func (sh *shard) receive(c crossing) {
	if c.to != nil {
		sh.deliverTo(c.to, c.m)
		return
	}
	sh.seen[c.m.origin] = c.m.seq
	sh.deliver(c.m)
	sh.letGo()
}

// hit is a session that a delivery selects.
type hit struct {
	s   *session
	o   options
	ids []uint32
}

// deliver sends a message to the subscribers of this shard. A session that several subscriptions
// select gets it once, with the highest QoS and all subscription identifiers [MQTT-3.3.4-2].
// deliver returns whether a subscription selected it.
func (sh *shard) deliver(m *message) (selected bool) {
	if len(sh.arrivals) > 0 {
		sh.log = append(sh.log, m)
		sh.logged++
	}
	if m.retain {
		sh.retained.set(m)
	}
	sh.delivery++
	sh.hits = sh.hits[:0]
	sh.subs.match(m.topic, func(n *node) {
		selected = selected || len(n.subs) > 0
		for _, sub := range n.subs {
			sh.choose(m, sub)
		}
		for _, g := range n.groups {
			if to := g.choose(); to != nil {
				selected = true
				if to.shard == sh.index {
					sh.deliverTo(to, m)
				} else {
					sh.cross(to.shard, crossing{m, to})
				}
			}
		}
	})
	sh.wire.reset()
	for i := range sh.hits {
		h := &sh.hits[i]
		sh.send(h.s, m, h.o, h.ids)
		*h = hit{}
	}
	return selected
}

// choose adds a subscription to the hits of a delivery.
func (sh *shard) choose(m *message, sub *subscription) {
	s := sub.s
	if sub.noLocal && m.from == s.id || s.had != nil && s.hadAlready(sh, m) {
		return
	}
	o := options{qos: min(m.qos, sub.options.qos), retain: m.retain && sub.keepFlag, id: sub.options.id}
	if s.mark != sh.delivery {
		s.mark, s.hit = sh.delivery, len(sh.hits)
		sh.hits = append(sh.hits, hit{s: s, o: o})
		return
	}
	h := &sh.hits[s.hit]
	h.o.qos = max(h.o.qos, o.qos)
	h.o.retain = h.o.retain || o.retain
	switch {
	case o.id == 0:
	case h.o.id == 0:
		h.o.id = o.id
	default:
		if h.ids == nil {
			h.ids = []uint32{h.o.id}
		}
		h.ids = append(h.ids, o.id)
	}
}

// send has a session deliver a message. To a client that reads fast enough, a message of QoS 0 needs
// no memory of its own.
func (sh *shard) send(s *session, m *message, o options, ids []uint32) {
	if o.qos == 0 {
		sh.scratch = outgoing{m: m, o: o, ids: ids}
		s.deliver(sh, &sh.scratch)
		return
	}
	s.deliver(sh, &outgoing{m: m, o: o, ids: ids})
}

// subscribe adds or replaces a subscription.
func (sh *shard) subscribe(s *session, sub *subscription) {
	old := s.subs[sub.filter]
	s.subs[sub.filter] = sub
	if old != nil {
		if old.groupName == "" {
			sh.subs.remove(old)
		}
	} else {
		s.most = max(s.most, len(s.subs))
		s.weight += weight(sub.filter)
		s.charge(&sh.budget, subscriptionCost+len(sub.filter))
		sh.b.counts.subscriptions.Add(1)
	}
	sh.insert(sub)
}

// insert makes a subscription of a session of this shard known to those that deliver.
func (sh *shard) insert(sub *subscription) {
	if sub.groupName == "" {
		sh.subs.at(sub.filter).add(sub)
		return
	}
	join := member{id: sub.s.id, shard: sh.index, options: sub.options, keepFlag: sub.keepFlag, filter: sub.filter, online: sub.s.client != nil}
	sh.at(sh.b.home(sub.filter), func(owner *shard) { owner.join(join) })
}

func (sh *shard) unsubscribe(s *session, filter string) (existed bool) {
	sub := s.subs[filter]
	if sub == nil {
		return false
	}
	delete(s.subs, filter)
	s.subs, s.most = shrink(s.subs, s.most)
	s.weight -= weight(filter)
	s.charge(&sh.budget, -subscriptionCost-len(filter))
	sh.b.counts.subscriptions.Add(-1)
	sh.withdraw(sub)
	return true
}

func (sh *shard) withdraw(sub *subscription) {
	if sub.groupName == "" {
		sh.subs.remove(sub)
		return
	}
	filter, id, at := sub.filter, sub.s.id, sh.index
	sh.at(sh.b.home(filter), func(owner *shard) { owner.leave(filter, id, at) })
}

// end forgets a session: it has expired, or its client wants a new one.
func (sh *shard) end(s *session) {
	s.stopTimers()
	s.publishWill(sh)
	for filter := range s.subs {
		sh.unsubscribe(s, filter)
	}
	for _, out := range s.inflight {
		out.drop(&sh.budget)
	}
	for _, out := range s.queue {
		out.drop(&sh.budget)
	}
	s.charge(&sh.budget, -s.cost)
	delete(sh.sessions, s.id)
	sh.b.counts.sessions.Add(-1)
	id, at := s.id, sh.index
	sh.at(sh.b.home(id), func(home *shard) {
		if o := home.owners[id]; o != nil && o.shard == at && !o.moving {
			delete(home.owners, id)
		}
	})
}

// claim finds the session of a client that has connected to this shard, or makes a new one, and
// calls then with it, or with nil if there is no room for one. then may run at once. The directory lets one claim of an identifier after
// another through.
//
// A session that is on another shard moves here, without missing a message or getting one twice:
// this shard begins to log what it delivers, and says how far it has got with each publisher (seen).
// The other shard goes on delivering to the session until it has got as far, and lets it go with its
// own seen. Of what this shard has logged, and delivers from then on, the session gets what is
// behind that.
func (sh *shard) claim(id string, fresh bool, then func(s *session, present bool)) {
	a := &arrival{sh.logged}
	sh.arrivals = append(sh.arrivals, a)
	seen := slices.Clone(sh.seen)
	here := sh.index
	sh.at(sh.b.home(id), func(home *shard) {
		home.ask(id, func(o *owner) {
			from := o.shard
			o.moving = true
			home.at(from, func(other *shard) {
				other.give(id, fresh, seen, here, func(s *session, seen []uint64) {
					other.at(here, func(sh *shard) {
						sh.arrive(a, id, s, seen, then)
						_, there := sh.sessions[id]
						sh.at(sh.b.home(id), func(home *shard) { home.moved(id, here, there) })
					})
				})
			})
		}, here)
	})
}

// ask calls f with the owner of a client identifier, once no claim of it is under way.
func (sh *shard) ask(id string, f func(o *owner), claimer int) {
	o := sh.owners[id]
	if o == nil {
		o = &owner{shard: claimer}
		sh.owners[id] = o
	}
	if o.moving {
		o.queue = append(o.queue, f)
		return
	}
	f(o)
}

// moved ends a claim. there: it has a session.
func (sh *shard) moved(id string, to int, there bool) {
	o := sh.owners[id]
	o.shard, o.moving = to, false
	switch {
	case len(o.queue) > 0:
		f := o.queue[0]
		o.queue = o.queue[1:]
		f(o)
	case !there:
		delete(sh.owners, id)
	}
}

// give calls then with the session that leaves this shard, or with nil if there is none to keep.
func (sh *shard) give(id string, fresh bool, until []uint64, to int, then func(s *session, seen []uint64)) {
	s := sh.sessions[id]
	if s != nil && s.client != nil {
		old := s.client
		s.detach(sh, false, !fresh && s.expiry > 0)
		old.end(mqtt.SessionTakenOver)
		s = sh.sessions[id]
	}
	if s != nil && fresh {
		sh.end(s)
		s = nil
	}
	if s == nil || to == sh.index {
		then(s, nil)
		return
	}
	s.stopTimers()
	sh.waiting = append(sh.waiting, waiting{s, until, to, then})
	sh.letGo()
}

// letGo lets sessions leave for which this shard has delivered enough.
func (sh *shard) letGo() {
	if len(sh.waiting) == 0 {
		return
	}
	var gone []waiting
	sh.waiting = slices.DeleteFunc(sh.waiting, func(w waiting) bool {
		for i, seq := range w.until {
			if sh.seen[i] < seq {
				return false
			}
		}
		gone = append(gone, w)
		return true
	})
	for _, w := range gone {
		for _, sub := range w.s.subs {
			sh.withdraw(sub)
		}
		delete(sh.sessions, w.s.id)
		seen := slices.Clone(sh.seen)
		for i, seq := range w.s.had {
			seen[i] = max(seen[i], seq)
		}
		w.then(w.s, seen)
	}
}

// arrive takes a session of another shard, or one of its own, or begins a new one.
func (sh *shard) arrive(a *arrival, id string, s *session, seen []uint64, then func(s *session, present bool)) {
	present := s != nil
	switch {
	case present:
		sh.sessions[id] = s
	case !sh.budget.full():
		s = sh.newSession(id)
	}
	if seen != nil {
		s.mark, s.had = 0, nil // deliveries are counted by each shard for itself
		for _, sub := range s.subs {
			sh.insert(sub)
		}
		for _, m := range sh.log[len(sh.log)-(sh.logged-a.from):] {
			if m.seq > seen[m.origin] {
				sh.deliverLate(s, m)
			}
		}
		s.had = seen
	}
	sh.arrivals = slices.DeleteFunc(sh.arrivals, func(other *arrival) bool { return other == a })
	keep := 0
	for _, other := range sh.arrivals {
		keep = max(keep, sh.logged-other.from)
	}
	sh.log = slices.Clone(sh.log[len(sh.log)-keep:])
	then(s, present)
}

// hadAlready reports whether the session got m on the shard that it came from.
func (s *session) hadAlready(sh *shard, m *message) bool {
	behind := false
	for i, seq := range s.had {
		behind = behind || sh.seen[i] < seq
	}
	had := m.seq <= s.had[m.origin]
	if !behind && !had {
		s.had = nil
	}
	return had
}

// deliverLate delivers to one session a message that was published before it arrived.
func (sh *shard) deliverLate(s *session, m *message) {
	sh.delivery++
	sh.hits = sh.hits[:0]
	for _, sub := range s.subs {
		if sub.groupName == "" && mqtt.Match([]byte(sub.filter), []byte(m.topic)) {
			sh.choose(m, sub)
		}
	}
	for _, h := range sh.hits {
		sh.send(h.s, m, h.o, h.ids)
	}
}
