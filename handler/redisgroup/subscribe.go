package redisgroup

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// A link keeps the subscriptions of the rooms of one bucket, on one redis.PubSub.
//
// It compares the rooms of the Hub with what it has asked for, channel by channel as they are
// touched, and asks Redis for the difference. A ping follows each batch: once it is answered, all
// that was published before has come. Whatever fails on a PubSub, it is discarded, and all rooms
// are subscribed to again on the next one, by the server that has the bucket then.
type link struct {
	hub    *Hub
	bucket int
	wake   chan struct{} // has a token while there may be something to ask for

	mu      sync.Mutex               // taken last
	sub     *redis.PubSub            // nil: there is none, or it has failed
	have    map[string]*subscription // by channel: what was asked for
	touched map[string]struct{}      // channels that have to be compared
	flight  []*subscription          // that the answer to the last ping is about
	waiting bool                     // for that answer
}

// newLinks makes one for each bucket.
func newLinks(h *Hub) []*link {
	links := make([]*link, h.keys.buckets)
	for bucket := range links {
		links[bucket] = &link{hub: h, bucket: bucket, wake: make(chan struct{}, 1)}
		h.wg.Go(links[bucket].run)
	}
	return links
}

// A subscription is what Redis was asked for.
type subscription struct {
	room  *room
	stood bool // Redis has answered
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

var (
	errReconnected = errors.New("redisgroup: go-redis has connected again by itself")
	errMoved       = errors.New("redisgroup: another server has these rooms now")
)

// touch has a channel compared, whose room is wanted or not. Without a PubSub there is no need: the
// next one begins with all rooms.
func (l *link) touch(channel string, wanted bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.sub == nil:
	case !wanted && l.have[channel] == nil:
		delete(l.touched, channel)
		return
	default:
		l.touched[channel] = struct{}{}
	}
	signal(l.wake)
}

func (l *link) isTouched(channel string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, touched := l.touched[channel]
	return touched
}

// run keeps a PubSub from the first room on until the Hub ends.
func (l *link) run() {
	select {
	case <-l.hub.ctx.Done():
	case <-l.wake:
	}
	var delays backoff
	for l.hub.ctx.Err() == nil {
		began := time.Now()
		err := l.session()
		if l.hub.ctx.Err() != nil {
			return
		}
		l.hub.masters.reload()
		if time.Since(began) > steady {
			delays = 0
		}
		if delays == 0 {
			l.hub.cfg.Logger.Warn().Err(err).Int("bucket", l.bucket).Msg("redisgroup: subscriptions lost; connecting again")
		}
		if time.Since(began) < steady {
			l.hub.pause(delays.next())
		}
	}
}

// session is the life of one PubSub.
func (l *link) session() (err error) {
	client, err := l.hub.masters.master(l.bucket)
	if err != nil {
		return err
	}
	ctx, fail := context.WithCancelCause(l.hub.ctx)
	sub := client.Subscribe(ctx)
	var receiving sync.WaitGroup
	defer func() {
		fail(err)
		_ = sub.Close() // which ends receive
		receiving.Wait()
		l.end(err)
	}()
	if err := sub.Ping(ctx); err != nil { // which connects
		return err
	}
	l.hub.count(&l.hub.stats.Connects)
	l.mu.Lock()
	l.sub, l.have, l.touched, l.waiting = sub, make(map[string]*subscription), make(map[string]struct{}), false
	l.mu.Unlock()
	for _, r := range l.hub.all() {
		if r.bucket == l.bucket {
			l.touch(r.channel, true)
		}
	}
	receiving.Go(func() { fail(l.receive(ctx, sub)) })
	probe := time.NewTicker(probeEvery)
	defer probe.Stop()
	for err == nil {
		select {
		case <-ctx.Done():
			err = context.Cause(ctx)
		case <-l.wake:
			err = l.ask(ctx, sub, false)
		case <-probe.C:
			if now, unknown := l.hub.masters.master(l.bucket); unknown == nil && now != client {
				return errMoved
			}
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
	l.sub, l.have, l.touched, l.flight = nil, nil, nil, nil
	l.mu.Unlock()
	for _, s := range have {
		s.room.lostSubscription()
		if !s.stood && isDenied(err) {
			s.room.deny(err)
		}
	}
}

// receive takes what comes, until the connection fails, or is silent in spite of pings.
func (l *link) receive(ctx context.Context, sub *redis.PubSub) error {
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

// differences returns which of channels are to be subscribed to, and which not any more.
func (l *link) differences(channels []string) (on, off []string) {
	for _, channel := range channels {
		r := l.hub.find(channel)
		l.mu.Lock()
		s := l.have[channel]
		switch {
		case r != nil:
			if s == nil {
				on = append(on, channel)
				s = &subscription{}
				l.have[channel] = s
			}
			s.room = r
			l.flight = append(l.flight, s)
		case s != nil:
			off = append(off, channel)
			delete(l.have, channel)
		}
		l.mu.Unlock()
	}
	return on, off
}

func inBatches(ctx context.Context, channels []string, command func(context.Context, ...string) error) error {
	for some := range slices.Chunk(channels, subscribeLimit) {
		if err := command(ctx, some...); err != nil {
			return err
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
		s.room.confirmed()
	}
	l.mu.Lock()
	l.waiting = false
	if len(l.touched) > 0 {
		signal(l.wake)
	}
	l.mu.Unlock()
}

// answered takes the answer about a channel, or the news that its slot, which is that of the whole
// bucket, has moved away.
func (l *link) answered(kind, channel string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.have[channel]
	switch {
	case kind == "subscribe" || kind == "ssubscribe":
		if s == nil || s.stood {
			return errReconnected
		}
		s.stood = true
	case s != nil: // nobody has asked for it
		return errMoved
	}
	return nil
}

// A SubscribeError says that the Redis user may not subscribe to a room, or to a user's own
// messages. It goes to Config.OnError, and to those who are joining with JoinFrom, as Arrival.Err.
// Redis does not say which of several rooms it refuses: all that were not subscribed to yet are
// told, of a cluster those of one bucket, and tried again.
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
