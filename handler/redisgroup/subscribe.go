package redisgroup

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// A subscriber keeps the subscriptions of one Redis server on one redis.PubSub. It compares what is
// wanted, the rooms of the Hub, with what it has asked for, channel by channel as they are touched,
// and asks Redis for the difference in batches. A ping follows each batch, and its answer confirms
// it: all that was published before that has come. Whatever fails on a PubSub, it is discarded, and
// all rooms are subscribed to again on the next one: go-redis itself would do that in one command,
// which a cluster refuses, and without a word.
type subscriber struct {
	hub   *Hub
	link  *link
	wake  chan struct{} // has a token while there may be something to ask for
	heard atomic.Bool   // something came since the last look

	mu      sync.Mutex          // taken last
	touched map[string]struct{} // channels that have to be compared
	have    map[string]*room    // by channel: what was asked for on this PubSub
	flight  *subscribeBatch     // nil: all was answered
	pings   int
}

// A subscribeBatch is what Redis was asked, and has not answered.
type subscribeBatch struct {
	ping    string
	on, off map[int][]string    // by bucket: channels that are subscribed to, or not any more
	pending map[string]struct{} // of those that are subscribed to: without an answer
	confirm []confirmation
}

// A confirmation is a room that is to be told that its subscription stands, for a barrier of its
// own.
type confirmation struct {
	room    *room
	barrier int
}

const (
	probeEvery = 2 * time.Second
	maxSilent  = 3               // probes without any answer, and the PubSub is discarded
	steady     = 5 * time.Second // a PubSub that lived for so long is replaced at once
	// subscribeLimit is how many channels one command names, and batchLimit how many one batch.
	subscribeLimit = 256
	batchLimit     = 16 * subscribeLimit
)

var (
	errSilent      = errors.New("redisgroup: the connection is silent in spite of pings")
	errReconnected = errors.New("redisgroup: go-redis has connected again by itself")
)

func (s *subscriber) init(h *Hub, l *link) {
	s.hub, s.link, s.wake = h, l, make(chan struct{}, 1)
}

// touch has a channel compared. Without a PubSub there is no need: the next one begins with all
// rooms.
func (s *subscriber) touch(channel string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.have != nil {
		s.touched[channel] = struct{}{}
		signal(s.wake)
	}
}

// drop is touch for a room that is not wanted any more.
func (s *subscriber) drop(channel string) {
	s.mu.Lock()
	_, soon := s.touched[channel]
	if soon = soon && s.have[channel] == nil; soon {
		delete(s.touched, channel)
	}
	s.mu.Unlock()
	if !soon {
		s.touch(channel)
	}
}

// run keeps a PubSub until the Hub ends, or the link is retired.
func (s *subscriber) run() {
	var delays backoff
	for ctx := s.link.ctx; ctx.Err() == nil; {
		began := time.Now()
		err := s.session(ctx)
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) > steady {
			delays.reset()
		}
		s.hub.cfg.Logger.Warn().Err(err).Str("redis", s.link.client.Options().Addr).Msg("redisgroup: subscriptions lost; connecting again")
		s.hub.masters.reload()
		if delays.tries == 0 {
			delays.tries++ // at once
		} else if !s.hub.pause(delays.next()) {
			return
		}
	}
}

// session is the life of one PubSub.
func (s *subscriber) session(ctx context.Context) (err error) {
	ctx, fail := context.WithCancelCause(ctx)
	sub := s.link.client.Subscribe(ctx)
	if err := sub.Ping(ctx); err != nil { // which connects
		fail(err)
		_ = sub.Close()
		return err
	}
	s.hub.stats.connects.Add(1)
	s.begin()
	var reading sync.WaitGroup
	reading.Go(func() { fail(s.runPubSubLoop(ctx, sub)) })
	defer func() {
		fail(err)
		_ = sub.Close() // which ends runPubSubLoop
		reading.Wait()
		s.end(err)
	}()
	probe := time.NewTicker(probeEvery)
	defer probe.Stop()
	for silent := 0; err == nil; {
		select {
		case <-ctx.Done():
			err = context.Cause(ctx)
		case <-s.wake:
			err = s.ask(ctx, sub, s.next(false))
		case <-probe.C:
			if silent++; s.heard.Swap(false) {
				silent = 0
			}
			if silent > maxSilent {
				err = errSilent
			} else {
				err = s.ask(ctx, sub, s.next(true))
			}
		}
	}
	return err
}

// begin has all rooms of the server's buckets compared with a PubSub that has none.
func (s *subscriber) begin() {
	s.mu.Lock()
	s.have, s.touched, s.flight = make(map[string]*room), make(map[string]struct{}), nil
	s.mu.Unlock()
	for _, r := range s.hub.all() {
		s.touch(r.channel)
	}
}

// end tells rooms that their PubSub is gone, and those that were refused why.
func (s *subscriber) end(err error) {
	s.mu.Lock()
	have, flight := s.have, s.flight
	s.have, s.flight = nil, nil
	s.mu.Unlock()
	for channel, r := range have {
		r.lostSubscription()
		if flight == nil || !isDenied(err) {
			continue
		}
		if _, refused := flight.pending[channel]; refused {
			r.deny(err)
		}
	}
}

// runPubSubLoop takes what comes, until the connection fails.
func (s *subscriber) runPubSubLoop(ctx context.Context, sub *redis.PubSub) error {
	for {
		v, err := sub.Receive(ctx)
		if err != nil {
			return err
		}
		s.heard.Store(true)
		switch v := v.(type) {
		case *redis.Message:
			s.hub.receive(v.Channel, v.Payload)
		case *redis.Subscription:
			err = s.answered(v.Kind, v.Channel)
		case *redis.Pong:
			s.confirmed(v.Payload)
		}
		if err != nil {
			return err
		}
	}
}

// next makes a batch of channels that were touched, or of none if probe is set. nil: there is
// nothing to ask, or the last batch was not answered yet.
func (s *subscriber) next(probe bool) *subscribeBatch {
	s.mu.Lock()
	if s.flight != nil || len(s.touched) == 0 && !probe {
		s.mu.Unlock()
		return nil
	}
	s.pings++
	b := &subscribeBatch{
		ping: strconv.Itoa(s.pings), on: make(map[int][]string), off: make(map[int][]string), pending: make(map[string]struct{}),
	}
	s.flight = b
	var channels []string
	for channel := range s.touched {
		if len(channels) == batchLimit {
			break
		}
		delete(s.touched, channel)
		channels = append(channels, channel)
	}
	s.mu.Unlock()
	for _, channel := range channels {
		r, barrier := s.hub.find(channel), 0
		if r != nil && s.hub.masters.link(r.bucket) != s.link {
			r = nil
		}
		if r != nil {
			barrier = r.barrier()
		}
		s.compare(b, channel, r, barrier)
	}
	return b
}

// compare adds to b what a channel needs, whose room is to be r.
func (s *subscriber) compare(b *subscribeBatch, channel string, r *room, barrier int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	had := s.have[channel]
	switch {
	case r == nil && had == nil:
		return
	case r == nil:
		b.off[had.bucket] = append(b.off[had.bucket], channel)
		delete(s.have, channel)
		return
	case had == nil:
		b.on[r.bucket] = append(b.on[r.bucket], channel)
		b.pending[channel] = struct{}{}
	}
	s.have[channel] = r
	b.confirm = append(b.confirm, confirmation{r, barrier})
}

// ask asks Redis for what a batch is about.
func (s *subscriber) ask(ctx context.Context, sub *redis.PubSub, b *subscribeBatch) error {
	if b == nil {
		return nil
	}
	subscribe, unsubscribe := sub.Subscribe, sub.Unsubscribe
	if s.hub.masters.sharded() {
		subscribe, unsubscribe = sub.SSubscribe, sub.SUnsubscribe
	}
	if err := inBatches(ctx, b.off, unsubscribe); err != nil {
		return err
	}
	if err := inBatches(ctx, b.on, subscribe); err != nil {
		return err
	}
	return sub.Ping(ctx, b.ping)
}

func inBatches(ctx context.Context, channels map[int][]string, command func(context.Context, ...string) error) error {
	for _, list := range channels { // of one bucket: those of a command must be of one slot
		for some := range slices.Chunk(list, subscribeLimit) {
			if err := command(ctx, some...); err != nil {
				return err
			}
		}
	}
	return nil
}

// confirmed takes the answer to a ping: the subscriptions of its batch stand.
func (s *subscriber) confirmed(ping string) {
	s.mu.Lock()
	b := s.flight
	if b == nil || b.ping != ping {
		s.mu.Unlock()
		return
	}
	s.flight = nil
	stand := slices.DeleteFunc(b.confirm, func(c confirmation) bool { return s.have[c.room.channel] != c.room })
	if len(s.touched) > 0 {
		signal(s.wake)
	}
	s.mu.Unlock()
	for _, c := range stand {
		c.room.confirmed(c.barrier)
	}
}

// answered takes the answer about a channel, or the news that its slot has moved away.
func (s *subscriber) answered(kind, channel string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch kind {
	case "subscribe", "ssubscribe":
		if s.flight == nil {
			return errReconnected
		}
		if _, asked := s.flight.pending[channel]; !asked {
			return errReconnected
		}
		delete(s.flight.pending, channel)
	case "unsubscribe", "sunsubscribe":
		if r := s.have[channel]; r != nil { // unasked: another server has the slot
			delete(s.have, channel)
			s.hub.masters.reload()
			s.hub.after(movedWait, func() {
				r.lostSubscription()
				s.hub.masters.link(r.bucket).subs.touch(channel)
			})
		}
	}
	return nil
}

// movedWait is how long a room whose slot has moved is not subscribed to: until it is known where.
const movedWait = 2 * reloadWait

// A SubscribeError says that the Redis user has no right to subscribe to a room, or to a user's own
// messages. It goes to Config.OnError, and to those who are joining with JoinFrom, as Arrival.Err.
// Redis does not say which of several rooms it refuses: all of one server that were not subscribed
// to yet are told, and are tried again until Redis allows them.
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
