package redisgroup

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// A subscriber keeps the subscriptions of one Redis server on one redis.PubSub. Whatever fails on
// it, the PubSub is discarded, and all rooms are subscribed to again on the next one, in batches:
// go-redis itself would do that in one command, which a cluster refuses, and without a word.
type subscriber struct {
	link  *link
	wake  chan struct{} // has a token while there may be something to ask for
	heard atomic.Bool   // something came since the last look

	mu         sync.Mutex
	subs       map[string]*subscription // by channel: wanted, or not known to have ended
	todo       map[string]*subscription // about which Redis has to be asked
	unanswered int                      // channels for which an answer is to come on this PubSub
	barriers   map[string][]barrier     // by the payload of a ping: what its answer confirms
	pings      int

	renewalsMu sync.Mutex // taken last: those who hold a room's lock take it
	renewals   []*room
}

// A subscription is what is wanted of a channel, and what was asked for on this PubSub.
type subscription struct {
	room    *room // nil: it is not wanted
	bucket  int
	on      bool // SUBSCRIBE was asked for last
	pending int  // SUBSCRIBEs without an answer
	renewal int  // of the room, when the last SUBSCRIBE was asked for
	failed  bool // it was asked for on the PubSub before, and not answered
}

// A barrier is a room whose subscription stands, and which is to be told when all that was
// published before a ping has come.
type barrier struct {
	room    *room
	renewal int
}

const (
	pingEvery = 2 * time.Second
	maxSilent = 3               // pings without any answer, and the PubSub is discarded
	steady    = 5 * time.Second // a PubSub that lived for so long is replaced at once
	// subscribeBatch is how many channels one command names.
	subscribeBatch = 256
	// maxUnanswered bounds what Redis is asked before it answers, and so the memory for rooms that
	// are joined and left while it does not.
	maxUnanswered = 16 * subscribeBatch
)

var (
	errSilent      = errors.New("redisgroup: the connection is silent in spite of pings")
	errReconnected = errors.New("redisgroup: go-redis has connected again by itself")
)

func (s *subscriber) init(l *link) {
	s.link, s.wake = l, make(chan struct{}, 1)
	s.subs, s.todo = make(map[string]*subscription), make(map[string]*subscription)
}

// want subscribes to r.
func (s *subscriber) want(r *room) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sub := s.subs[r.channel]
	if sub == nil {
		sub = &subscription{}
		s.subs[r.channel] = sub
	}
	fresh := sub.room != r
	sub.room, sub.bucket = r, r.bucket
	if sub.on && sub.pending == 0 { // it was dropped a moment ago, and Redis was not asked yet
		delete(s.todo, r.channel)
		if fresh {
			r.confirmed(r.renewals())
		}
		return
	}
	if !sub.on {
		s.todo[r.channel] = sub
		signal(s.wake)
		return
	}
	delete(s.todo, r.channel)
	sub.renewal = r.renewals()
}

// drop unsubscribes from r.
func (s *subscriber) drop(r *room) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sub := s.subs[r.channel]
	if sub == nil || sub.room != r {
		return
	}
	sub.room = nil
	if !sub.on && sub.pending == 0 {
		delete(s.subs, r.channel)
		delete(s.todo, r.channel)
		return
	}
	s.todo[r.channel] = sub
	signal(s.wake)
}

// renew tells r when all that was published so far has come. r.mu is held.
func (s *subscriber) renew(r *room) {
	s.renewalsMu.Lock()
	s.renewals = append(s.renewals, r)
	s.renewalsMu.Unlock()
	signal(s.wake)
}

// signal puts a token into c, if there is none.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// run keeps a PubSub until the Hub ends.
func (s *subscriber) run() {
	hub, ctx, delays := s.link.hub, s.link.ctx, backoff{}
	for ctx.Err() == nil {
		began := time.Now()
		err := s.session()
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) > steady {
			delays.reset()
		}
		if isDenied(err) {
			s.deny(err)
		}
		hub.cfg.Logger.Warn().Err(err).Str("redis", s.link.addr).Msg("redisgroup: subscriptions lost; connecting again")
		if hub.servers.cluster != nil {
			hub.servers.reload()
		}
		if delays.tries == 0 {
			delays.tries++ // at once
		} else if !hub.pause(delays.next()) {
			return
		}
	}
}

// session is the life of one PubSub.
func (s *subscriber) session() error {
	ctx, cancel := context.WithCancel(s.link.ctx)
	defer cancel()
	sub := s.link.client.Subscribe(ctx)
	defer sub.Close()
	if err := sub.Ping(ctx); err != nil { // which connects
		return err
	}
	s.link.hub.stats.connects.Add(1)
	defer s.reset()
	signal(s.wake)
	ended := make(chan error, 1)
	go func() { ended <- s.receive(ctx, sub) }()
	tick := time.NewTicker(pingEvery)
	defer tick.Stop()
	for silent := 0; ; {
		var err error
		select {
		case err := <-ended:
			return err
		case <-ctx.Done():
			err = ctx.Err()
		case <-s.wake:
			err = s.ask(ctx, sub)
		case <-tick.C:
			if silent++; s.heard.Swap(false) {
				silent = 0
			} else if silent > maxSilent {
				err = errSilent
			} else {
				err = sub.Ping(ctx)
			}
		}
		if err != nil {
			cancel()
			_ = sub.Close() // which ends receive
			<-ended
			return err
		}
	}
}

// receive takes what comes, until the connection fails.
func (s *subscriber) receive(ctx context.Context, sub *redis.PubSub) error {
	for {
		v, err := sub.Receive(ctx)
		if err != nil {
			return err
		}
		s.heard.Store(true)
		switch v := v.(type) {
		case *redis.Message:
			s.link.hub.receive(v.Channel, v.Payload)
		case *redis.Subscription:
			err = s.answered(v.Kind, v.Channel)
		case *redis.Pong:
			s.passed(v.Payload)
		}
		if err != nil {
			return err
		}
	}
}

// reset forgets what was asked for on a PubSub that is gone. What is wanted is asked for again on
// the next one.
func (s *subscriber) reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	subs := make(map[string]*subscription)
	for channel, sub := range s.subs {
		if sub.room != nil {
			sub.failed = sub.on && sub.pending > 0
			sub.on, sub.pending = false, 0
			sub.room.lostSubscription()
			subs[channel] = sub
		}
	}
	s.subs, s.todo = subs, maps.Clone(subs)
	s.unanswered, s.barriers = 0, nil
}

// ask asks Redis for what there is to do. What is too much at once waits for answers.
func (s *subscriber) ask(ctx context.Context, sub *redis.PubSub) error {
	on, off, ping := s.take()
	subscribe, unsubscribe := sub.Subscribe, sub.Unsubscribe
	if s.link.hub.servers.sharded() {
		subscribe, unsubscribe = sub.SSubscribe, sub.SUnsubscribe
	}
	for _, channels := range off {
		if err := unsubscribe(ctx, channels...); err != nil {
			return err
		}
	}
	for _, channels := range on {
		if err := subscribe(ctx, channels...); err != nil {
			return err
		}
	}
	if ping != "" {
		return sub.Ping(ctx, ping)
	}
	return nil
}

// take takes what there is to do: channels for each command, all of one bucket, and the payload of
// a ping that is to follow them, if any.
func (s *subscriber) take() (on, off [][]string, ping string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ons, offs := make(map[int][]string), make(map[int][]string)
	for channel, sub := range s.todo {
		if s.unanswered >= maxUnanswered {
			break
		}
		delete(s.todo, channel)
		switch {
		case sub.room != nil && !sub.on:
			sub.on, sub.renewal = true, sub.room.renewals()
			sub.pending++
			s.unanswered++
			ons[sub.bucket] = append(ons[sub.bucket], channel)
		case sub.room == nil && sub.on:
			sub.on = false
			s.unanswered++
			offs[sub.bucket] = append(offs[sub.bucket], channel)
			if sub.pending == 0 {
				delete(s.subs, channel)
			}
		}
	}
	return batches(ons), batches(offs), s.takeRenewals()
}

// takeRenewals makes barriers of the rooms that wait for one. s.mu is held.
func (s *subscriber) takeRenewals() (ping string) {
	s.renewalsMu.Lock()
	rooms := s.renewals
	s.renewals = nil
	s.renewalsMu.Unlock()
	var all []barrier
	for _, r := range rooms {
		if sub := s.subs[r.channel]; sub != nil && sub.room == r && sub.on {
			all = append(all, barrier{r, r.renewals()})
		}
	}
	if len(all) == 0 {
		return ""
	}
	s.pings++
	ping = strconv.Itoa(s.pings)
	if s.barriers == nil {
		s.barriers = make(map[string][]barrier)
	}
	s.barriers[ping] = all
	return ping
}

// batches divides channels into commands.
func batches(channels map[int][]string) (all [][]string) {
	for _, list := range channels {
		for len(list) > subscribeBatch {
			all = append(all, list[:subscribeBatch])
			list = list[subscribeBatch:]
		}
		all = append(all, list)
	}
	return all
}

// passed takes the answer to a ping: all that was published before has come.
func (s *subscriber) passed(ping string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, b := range s.barriers[ping] {
		if sub := s.subs[b.room.channel]; sub != nil && sub.room == b.room && sub.on {
			b.room.confirmed(b.renewal)
		}
	}
	delete(s.barriers, ping)
}

// answered takes the answer about a channel, or the news that its slot has moved away.
func (s *subscriber) answered(kind, channel string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	sub := s.subs[channel]
	switch kind {
	case "subscribe", "ssubscribe":
		if sub == nil || sub.pending == 0 {
			return errReconnected
		}
		s.told()
		switch sub.pending--; {
		case sub.pending > 0:
		case sub.room != nil && sub.on:
			sub.room.confirmed(sub.renewal)
		case sub.room == nil && !sub.on:
			delete(s.subs, channel)
		}
	case "unsubscribe", "sunsubscribe":
		if sub != nil && sub.room != nil && sub.on && sub.pending == 0 { // unasked: another server has the slot
			sub.on = false
			s.moved(sub.room)
			return nil
		}
		s.told()
	}
	return nil
}

// told counts an answer. s.mu is held.
func (s *subscriber) told() {
	if s.unanswered--; s.unanswered < maxUnanswered && len(s.todo) > 0 {
		signal(s.wake)
	}
}

// moved subscribes to r again where its slot is by then, if it is still wanted. s.mu is held.
func (s *subscriber) moved(r *room) {
	r.lostSubscription()
	hub := s.link.hub
	hub.servers.reload()
	_, _ = hub.timers.AfterFunc(2*reloadWait, func() {
		hub.ifThere(r, func() {
			if l := hub.servers.link(r.bucket); l == s.link {
				l.subs.want(r)
			}
		})
	})
}

// A SubscribeError says that the Redis user has no right to subscribe to a room, or to a user's own
// messages. It goes to Config.OnError when that is seen first, and to those who are joining with
// JoinFrom, as Arrival.Err. Redis does not say which of several rooms it refuses: all of one server
// that were not subscribed to yet are told, and are tried again until Redis allows them.
type SubscribeError struct {
	Room string // or the user's name
	Err  error  // what Redis said
}

// Error implements error.
func (e *SubscribeError) Error() string {
	return fmt.Sprintf("redisgroup: cannot subscribe to %q: %v", e.Room, e.Err)
}

// Unwrap returns Err.
func (e *SubscribeError) Unwrap() error { return e.Err }

// deny tells rooms that were asked for, and not answered, that Redis has refused it.
func (s *subscriber) deny(err error) {
	s.mu.Lock()
	var rooms []*room
	for _, sub := range s.subs {
		if sub.room != nil && sub.failed {
			rooms = append(rooms, sub.room)
		}
	}
	s.mu.Unlock()
	for _, r := range rooms {
		if e, news := r.deny(err); news && !s.link.hub.report(e) {
			r.denyAgain()
		}
	}
}
