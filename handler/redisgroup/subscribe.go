package redisgroup

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// A link is what a Hub has of one Redis server: how much waits for it, and the subscriptions of the
// rooms in its buckets, on one redis.PubSub.
//
// It compares the rooms of the Hub with what it has asked for, channel by channel as they are
// touched, and asks Redis for the difference. A ping follows each batch: once it is answered, all
// that was published before has come. Whatever fails on a PubSub, it is discarded, and all rooms
// are subscribed to again on the next one: go-redis would do that in one command, which a cluster
// refuses.
type link struct {
	hub    *Hub
	client *redis.Client // nil: the server is not known, and nothing is sent
	load   atomic.Int64  // bytes that wait for it
	ctx    context.Context
	retire context.CancelFunc // it has no bucket any more
	wake   chan struct{}      // has a token while there may be something to ask for

	mu      sync.Mutex               // taken last
	have    map[string]*subscription // by channel: what was asked for; nil without a PubSub
	touched map[string]struct{}      // channels that have to be compared
	flight  []*subscription          // that the answer to the last ping is about
	waiting bool                     // for that answer
}

func newLink(h *Hub, client *redis.Client) *link {
	l := &link{hub: h, client: client, wake: make(chan struct{}, 1)}
	l.ctx, l.retire = context.WithCancel(h.ctx)
	if client != nil {
		h.wg.Go(l.run)
	}
	return l
}

// A subscription is what Redis was asked for.
type subscription struct {
	room       *room
	generation int  // of the room, as of the last ping
	stood      bool // Redis has answered
}

const (
	probeEvery = 2 * time.Second
	maxSilence = 4 * probeEvery  // a PubSub that nothing comes from for so long is discarded
	steady     = 5 * time.Second // one that lived for so long is replaced at once
	// subscribeLimit is how many channels one command names.
	subscribeLimit = 256
	// batchPing is the ping after a batch. That which connects has no text.
	batchPing = "batch"
)

var errReconnected = errors.New("redisgroup: go-redis has connected again by itself")

// touch has a channel compared, whose room is wanted or not. Without a PubSub there is no need: the
// next one begins with all rooms.
func (l *link) touch(channel string, wanted bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.have == nil:
	case !wanted && l.have[channel] == nil:
		delete(l.touched, channel)
	default:
		l.touched[channel] = struct{}{}
		signal(l.wake)
	}
}

// run keeps a PubSub until the Hub ends, or the link is retired.
func (l *link) run() {
	var delays backoff
	for l.ctx.Err() == nil {
		began := time.Now()
		err := l.session()
		if l.ctx.Err() != nil {
			return
		}
		l.hub.cfg.Logger.Warn().Err(err).Str("redis", l.client.Options().Addr).Msg("redisgroup: subscriptions lost; connecting again")
		l.hub.masters.reload()
		if time.Since(began) > steady {
			delays = 0
		} else {
			l.hub.pause(delays.next())
		}
	}
}

// session is the life of one PubSub.
func (l *link) session() (err error) {
	ctx, fail := context.WithCancelCause(l.ctx)
	sub := l.client.Subscribe(ctx)
	if err := sub.Ping(ctx); err != nil { // which connects
		fail(err)
		_ = sub.Close()
		return err
	}
	l.hub.count(&l.hub.stats.Connects)
	l.mu.Lock()
	l.have, l.touched, l.waiting = make(map[string]*subscription), make(map[string]struct{}), false
	l.mu.Unlock()
	for _, r := range l.hub.all() {
		l.touch(r.channel, true)
	}
	var reading sync.WaitGroup
	reading.Go(func() { fail(l.runPubSubLoop(ctx, sub)) })
	defer func() {
		fail(err)
		_ = sub.Close() // which ends runPubSubLoop
		reading.Wait()
		l.end(err)
	}()
	probe := time.NewTicker(probeEvery)
	defer probe.Stop()
	for err == nil {
		select {
		case <-ctx.Done():
			err = context.Cause(ctx)
		case <-l.wake:
			err = l.ask(ctx, sub, false)
		case <-probe.C:
			err = l.ask(ctx, sub, true)
		}
	}
	return err
}

// end tells rooms that their PubSub is gone. Those that Redis has not answered about are told why,
// if it has denied them.
func (l *link) end(err error) {
	l.mu.Lock()
	have := l.have
	l.have, l.touched, l.flight = nil, nil, nil
	l.mu.Unlock()
	for _, s := range have {
		s.room.lostSubscription()
		if !s.stood && isDenied(err) {
			s.room.deny(err)
		}
	}
}

// runPubSubLoop takes what comes, until the connection fails, or is silent in spite of pings.
func (l *link) runPubSubLoop(ctx context.Context, sub *redis.PubSub) error {
	for {
		v, err := sub.ReceiveTimeout(ctx, maxSilence)
		if err != nil {
			return err
		}
		switch v := v.(type) {
		case *redis.Message:
			l.hub.receive(v.Channel, v.Payload)
		case *redis.Subscription:
			err = l.answered(v.Kind, v.Channel)
		case *redis.Pong:
			if v.Payload == batchPing {
				l.confirmed()
			}
		}
		if err != nil {
			return err
		}
	}
}

// ask asks Redis for what channels need that were touched, unless the last batch was not answered
// yet. If there are none it sends a ping if probe is set.
func (l *link) ask(ctx context.Context, sub *redis.PubSub, probe bool) error {
	l.mu.Lock()
	if l.waiting || len(l.touched) == 0 && !probe {
		l.mu.Unlock()
		return nil
	}
	l.waiting = true
	channels := slices.Collect(maps.Keys(l.touched))
	l.touched = make(map[string]struct{})
	l.mu.Unlock()
	subscribe, unsubscribe := sub.Subscribe, sub.Unsubscribe
	if l.hub.masters.cluster != nil {
		subscribe, unsubscribe = sub.SSubscribe, sub.SUnsubscribe
	}
	on, off := l.differences(channels)
	if err := inBatches(ctx, off, unsubscribe); err != nil {
		return err
	}
	if err := inBatches(ctx, on, subscribe); err != nil {
		return err
	}
	return sub.Ping(ctx, batchPing)
}

// differences returns which of channels are to be subscribed to, and which not any more, by bucket.
func (l *link) differences(channels []string) (on, off map[int][]string) {
	on, off = make(map[int][]string), make(map[int][]string)
	for _, channel := range channels {
		r, generation := l.hub.find(channel), 0
		if r != nil && l.hub.masters.link(r.bucket) != l {
			r = nil
		}
		if r != nil {
			generation = r.generation()
		}
		l.mu.Lock()
		s := l.have[channel]
		switch {
		case r != nil:
			if s == nil {
				on[r.bucket] = append(on[r.bucket], channel)
				s = &subscription{}
				l.have[channel] = s
			}
			s.room, s.generation = r, generation
			l.flight = append(l.flight, s)
		case s != nil:
			off[s.room.bucket] = append(off[s.room.bucket], channel)
			delete(l.have, channel)
		}
		l.mu.Unlock()
	}
	return on, off
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

// confirmed takes the answer to the ping of a batch: its subscriptions stand.
func (l *link) confirmed() {
	l.mu.Lock()
	flight := l.flight
	l.flight = nil
	l.mu.Unlock()
	for _, s := range flight { // nobody changes them while waiting is set
		s.room.confirmed(s.generation)
	}
	l.mu.Lock()
	l.waiting = false
	if len(l.touched) > 0 {
		signal(l.wake)
	}
	l.mu.Unlock()
}

// answered takes the answer about a channel, or the news that its slot has moved away: then the
// room is subscribed to where it is when that is known.
func (l *link) answered(kind, channel string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.have[channel]
	switch kind {
	case "subscribe", "ssubscribe":
		if s == nil || s.stood {
			return errReconnected
		}
		s.stood = true
	case "unsubscribe", "sunsubscribe":
		if s == nil {
			return nil // it was asked for
		}
		r := s.room
		l.mu.Unlock()
		r.lostSubscription() // before it can be subscribed to anew
		l.mu.Lock()
		delete(l.have, channel)
		l.hub.masters.reload()
	}
	return nil
}

// A SubscribeError says that the Redis user may not subscribe to a room, or to a user's own
// messages. It goes to Config.OnError, and to those who are joining with JoinFrom, as Arrival.Err.
// Redis does not say which of several rooms it refuses: all of one server that were not subscribed
// to yet are told, and tried again.
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
