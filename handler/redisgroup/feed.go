package redisgroup

import (
	"context"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/loopwheel/loopwheel/codec/resp"
	"github.com/loopwheel/loopwheel/timing"
)

// A feed is the connection of a link for subscriptions. It is made anew when it breaks, and all
// that is wanted is subscribed to again: by us, as go-redis does it in one command, which a cluster
// refuses.
type feed struct {
	link *link
	wake chan struct{}
	wire atomic.Pointer[wire] // nil: there is none

	mu   sync.Mutex
	subs map[string]*subscription // by channel
	todo map[string]*subscription // that are not as they should be

	renewalsMu sync.Mutex // taken last, and so by those who hold a room's lock
	renewals   []*room    // that want to be subscribed once more
}

// A subscription is what is wanted of a channel, and what was said about it on this connection.
type subscription struct {
	room      *room // nil: it is not wanted
	bucket    int
	wanted    bool
	on        bool // SUBSCRIBE was the last that was sent
	stands    bool // Redis has it: one more SUBSCRIBE may be denied, and changes nothing
	sent      int  // SUBSCRIBEs
	confirmed int
	renewal   int         // of the room's, see order
	renewed   int         // that the last SUBSCRIBE was for
	alone     bool        // it has a SUBSCRIBE of its own, as one with others was denied
	denials   int         // in a row
	retry     timing.Job // of what was denied
}

func (f *feed) init(l *link) {
	f.link, f.wake = l, make(chan struct{}, 1)
	f.subs, f.todo = make(map[string]*subscription), make(map[string]*subscription)
}

// want has r subscribed.
func (f *feed) want(r *room) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.subs[r.channel]
	if s == nil {
		s = &subscription{}
		f.subs[r.channel] = s
	}
	fresh := s.room != r
	s.room, s.bucket, s.wanted, s.renewal = r, r.bucket, true, r.renewals()
	if s.on && s.confirmed == s.sent && fresh { // it had been dropped a moment ago
		s.renewed = s.renewal
		r.confirmed(s.renewed)
		delete(f.todo, r.channel)
		return
	}
	f.todo[r.channel] = s
	f.signal()
}

// renewSoon has r subscribed once more, if it is still wanted then. r.mu is held.
func (f *feed) renewSoon(r *room) {
	f.renewalsMu.Lock()
	f.renewals = append(f.renewals, r)
	f.renewalsMu.Unlock()
	f.signal()
}

// renew adds to what there is to do the rooms that want to be subscribed once more. f.mu is held.
func (f *feed) renew() {
	f.renewalsMu.Lock()
	rooms := f.renewals
	f.renewals = nil
	f.renewalsMu.Unlock()
	for _, r := range rooms {
		s := f.subs[r.channel]
		if s == nil || s.room != r || !s.wanted {
			continue
		}
		if s.renewal = r.renewals(); s.renewal != s.renewed {
			f.todo[r.channel] = s
		}
	}
}

// drop has r unsubscribed.
func (f *feed) drop(r *room) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.subs[r.channel]
	if s == nil || s.room != r {
		return
	}
	s.room, s.wanted = nil, false
	s.retry.Stop()
	if !s.on && !s.stands && s.sent == s.confirmed { // nothing was said of it on this connection, or there is none
		delete(f.subs, r.channel)
		delete(f.todo, r.channel)
		return
	}
	f.todo[r.channel] = s
	f.signal()
}

func (f *feed) signal() {
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// Times of a connection.
const (
	pingEvery = 2 * time.Second // when nothing comes
	maxSilent = 3               // pings without any answer, and the connection is given up
	steady    = 5 * time.Second // a connection that lived for so long is made anew at once
	// maxChannels is for how many channels one command subscribes.
	maxChannels = 512
)

// run keeps a connection.
func (f *feed) run() {
	var delays backoff
	for f.link.hub.ctx.Err() == nil {
		began := time.Now()
		err := f.session()
		if time.Since(began) > steady {
			delays.reset()
		}
		if f.link.hub.ctx.Err() != nil {
			return
		}
		f.link.hub.cfg.Logger.Warn().Err(err).Str("redis", f.link.addr).Msg("redisgroup: subscriptions lost; connecting again")
		if f.link.hub.topo.cluster != nil {
			f.link.hub.topo.reload()
		}
		if delays.tries == 0 {
			delays.tries++ // at once
		} else if !f.link.hub.topo.pause(delays.next()) {
			return
		}
	}
}

// session is the life of one connection.
func (f *feed) session() error {
	ctx, cancel := context.WithCancel(f.link.hub.ctx)
	defer cancel()
	who := newIdentity(f.link.hub)
	defer who.close()
	client, w, err := f.dial(ctx, who)
	if err != nil {
		return err
	}
	defer client.Close()
	if err := f.link.hub.topo.ready(ctx); err != nil {
		return err
	}
	f.link.hub.stats.connects.Add(1)
	defer f.reset()
	f.wire.Store(w)
	defer f.wire.Store(nil)
	ended := make(chan error, 1)
	go func() {
		err := w.read(f.heard)
		w.fail(err)
		ended <- err
	}()
	for {
		select {
		case err := <-ended:
			return err
		case <-f.wake:
			err = f.write(w)
		case <-w.answers:
			err = f.write(w)
		case <-who.changed:
			err = w.auth(who.take())
			f.retryDenied()
		case <-ctx.Done():
			err = ctx.Err()
		}
		if err != nil {
			w.fail(err) // which ends read
			<-ended
			return err
		}
	}
}

// reset has everything subscribed on the next connection. What is not wanted is forgotten, and its
// memory given back.
func (f *feed) reset() {
	f.mu.Lock()
	defer f.mu.Unlock()
	subs := make(map[string]*subscription)
	for channel, s := range f.subs {
		if s.wanted {
			s.on, s.stands, s.sent, s.confirmed = false, false, 0, 0
			s.room.lostSubscription()
			subs[channel] = s
		}
	}
	f.subs, f.todo = subs, maps.Clone(subs)
	f.signal()
}

// write sends what there is to do, in commands of many channels; in a cluster, of one bucket each. If
// too much was asked already, it waits for answers.
func (f *feed) write(w *wire) error {
	if !w.mayAsk() {
		return nil
	}
	on, off := f.take()
	sub, unsub := "SUBSCRIBE", "UNSUBSCRIBE"
	if f.link.hub.topo.sharded.Load() {
		sub, unsub = "SSUBSCRIBE", "SUNSUBSCRIBE"
	}
	if err := w.about(unsub, off...); err != nil {
		return err
	}
	return w.about(sub, on...)
}

// take takes what there is to do.
func (f *feed) take() (on, off [][]string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.renew()
	ons, offs := make(map[int][]string), make(map[int][]string)
	var alone [][]string
	for channel, s := range f.todo {
		switch {
		case s.wanted && (!s.on || s.renewed != s.renewal):
			s.on, s.renewed = true, s.renewal
			s.sent++
			if s.alone {
				alone = append(alone, []string{channel})
				break
			}
			ons[s.bucket] = append(ons[s.bucket], channel)
		case !s.wanted && (s.on || s.stands):
			s.on, s.stands = false, false
			offs[s.bucket] = append(offs[s.bucket], channel)
			if s.sent == s.confirmed {
				delete(f.subs, channel)
			}
		case !s.wanted:
			delete(f.subs, channel)
		}
	}
	clear(f.todo)
	return append(chunks(ons), alone...), chunks(offs)
}

// chunks divides lists into commands.
func chunks(lists map[int][]string) (all [][]string) {
	for _, list := range lists {
		for len(list) > maxChannels {
			all = append(all, list[:maxChannels])
			list = list[maxChannels:]
		}
		all = append(all, list)
	}
	return all
}

// heard takes what a subscription brings.
func (f *feed) heard(said []resp.Value) {
	if len(said) < 3 {
		return
	}
	switch kind := string(said[0].Str); kind {
	case "message", "smessage":
		f.link.hub.receive(said[1].Str, said[2].Str)
	default:
		f.answered(kind, string(said[1].Str))
	}
}

// answered takes a confirmation, or the news that a slot has moved away.
func (f *feed) answered(kind, channel string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.subs[channel]
	if s == nil {
		return
	}
	switch kind {
	case "subscribe", "ssubscribe":
		s.confirmed++
		s.stands = s.stands || s.on
		switch {
		case s.confirmed != s.sent:
		case s.wanted && s.on:
			s.allowed()
			s.room.confirmed(s.renewed)
		case !s.wanted && !s.on:
			delete(f.subs, channel)
		}
	case "sunsubscribe":
		if s.wanted && s.on && s.confirmed == s.sent { // unasked: the slot is another server's now
			s.on, s.stands = false, false
			f.moved(s.room)
		}
	}
}

// moved has a subscription made anew where its slot is now, if it is still wanted then: there may be
// a while until that is known. f.mu is held.
func (f *feed) moved(r *room) {
	r.lostSubscription()
	topo := f.link.hub.topo
	topo.reload()
	_, _ = f.link.hub.timers.AfterFunc(2*reloadWait, func() {
		topo.hub.ifThere(r, func() {
			if l := topo.link(r.bucket); l == f.link {
				l.in.want(r)
			}
		})
	})
}
