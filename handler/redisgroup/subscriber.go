package redisgroup

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/loopwheel/loopwheel/internal/onredis"
)

// A subscriber keeps the subscriptions of the rooms of one bucket, on one redis.PubSub.
//
// It compares the Hub's rooms with its subscriptions, for each touched channel, and sends the
// difference to Redis. The answer for a channel comes after everything that was published there
// before. So a room that must exclude old messages subscribes again. After any failure, the PubSub
// is discarded, and all rooms are subscribed again on a new one, at the server that then has the
// bucket.
type subscriber struct {
	hub    *Hub
	bucket int
	wake   chan struct{} // has a token if there may be something to send

	mu        sync.Mutex               // locked after a room's lock
	sub       *redis.PubSub            // nil if there is none, or if it has failed
	requested map[string]*subscription // by channel
	answers   int                      // pending answers; nothing more is sent until they have come
	touched   map[string]struct{}      // channels to compare
}

// newSubscribers returns a subscriber for each bucket.
func newSubscribers(h *Hub) []*subscriber {
	subscribers := make([]*subscriber, h.keys.buckets)
	for bucket := range subscribers {
		subscribers[bucket] = &subscriber{hub: h, bucket: bucket, wake: make(chan struct{}, 1)}
		h.wg.Go(subscribers[bucket].run)
	}
	return subscribers
}

// A subscription is the last request for a channel.
type subscription struct {
	on       bool // subscribe, or unsubscribe
	answered bool
}

const (
	probeEvery = 2 * time.Second
	maxSilence = 4 * probeEvery  // a PubSub that is silent for this long is discarded
	steady     = 5 * time.Second // a PubSub that lived for this long is replaced at once
	// subscribeLimit is the maximum number of channels in one command.
	subscribeLimit = 256
)

var errMoved = errors.New("redisgroup: another server has these rooms now, or go-redis has connected again by itself")

// touch marks a channel for comparison. If its room is wanted, it is also subscribed again. Without
// a PubSub there is no need: the next one begins with all rooms.
func (l *subscriber) touch(channel string, wanted bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.sub == nil:
	case !wanted && l.requested[channel] == nil:
		delete(l.touched, channel)
	default:
		l.touched[channel] = struct{}{}
	}
	signal(l.wake)
}

// run keeps a PubSub from the first room until the Hub ends.
func (l *subscriber) run() {
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
		l.hub.reload()
		if time.Since(began) > steady {
			delays = 0
		}
		if delays == 0 {
			l.hub.cfg.Logger.Warn().Err(err).Int("bucket", l.bucket).Msg("redisgroup: no subscriptions; connecting again")
		}
		if time.Since(began) < steady {
			l.hub.pause(delays.next())
		}
	}
}

// session runs one PubSub.
func (l *subscriber) session() (err error) {
	client, err := l.hub.master(l.bucket)
	if err != nil {
		return err
	}
	ctx, fail := context.WithCancelCause(l.hub.ctx)
	sub := client.Subscribe(ctx)
	var receiving sync.WaitGroup
	defer func() {
		fail(err)
		_ = sub.Close() // this ends receive
		receiving.Wait()
		l.end(err)
	}()
	if err := sub.Ping(ctx); err != nil { // this connects
		return err
	}
	l.hub.count(&l.hub.stats.Connects)
	l.mu.Lock()
	l.sub, l.requested, l.touched, l.answers = sub, make(map[string]*subscription), make(map[string]struct{}), 0
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
			err = l.ask(ctx, sub)
		case <-probe.C:
			if now, unknown := l.hub.master(l.bucket); unknown == nil && now != client {
				return errMoved
			}
			err = sub.Ping(ctx)
		}
	}
	return err
}

// end reports to rooms that their PubSub is gone. Rooms without an answer from Redis get the error
// if Redis denied them.
func (l *subscriber) end(err error) {
	l.mu.Lock()
	requested := l.requested
	l.sub, l.requested, l.touched = nil, nil, nil
	l.mu.Unlock()
	for channel, s := range requested {
		if r := l.hub.find(channel); r != nil {
			r.mu.Lock()
			r.renew()
			r.mu.Unlock()
			if !s.answered && onredis.Denied(err) {
				r.deny(err)
			}
		}
	}
}

// receive processes messages until the connection fails, or is silent despite pings.
func (l *subscriber) receive(ctx context.Context, sub *redis.PubSub) error {
	for {
		v, err := sub.ReceiveTimeout(ctx, maxSilence)
		if err != nil {
			return err
		}
		switch v := v.(type) {
		case *redis.Message:
			l.hub.receive(v.Channel, v.Payload)
		case *redis.Subscription:
			if !l.answered(v.Channel) {
				return errMoved
			}
		}
	}
}

// ask sends Redis the changes for touched channels.
func (l *subscriber) ask(ctx context.Context, sub *redis.PubSub) error {
	subscribe, unsubscribe := sub.Subscribe, sub.Unsubscribe
	if l.hub.cluster != nil {
		subscribe, unsubscribe = sub.SSubscribe, sub.SUnsubscribe
	}
	on, off := l.differences()
	if err := inBatches(ctx, off, unsubscribe); err != nil {
		return err
	}
	return inBatches(ctx, on, subscribe)
}

// differences returns the channels to subscribe and to unsubscribe. It returns none while answers
// are pending.
func (l *subscriber) differences() (on, off []string) {
	l.mu.Lock()
	if l.answers > 0 {
		l.mu.Unlock()
		return nil, nil
	}
	touched := l.touched
	l.touched = make(map[string]struct{})
	l.mu.Unlock()
	for channel := range touched {
		wanted := l.hub.find(channel) != nil // later changes touch it again
		l.mu.Lock()
		if s := l.requested[channel]; wanted {
			on = append(on, channel)
			l.requested[channel] = &subscription{on: true}
			l.answers++
		} else if s != nil && s.on {
			off = append(off, channel)
			l.requested[channel] = &subscription{}
			l.answers++
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

// answered processes an answer for a channel, and reports whether it was expected. After the last
// one, the subscription is active, or has ended.
func (l *subscriber) answered(channel string) bool {
	r := l.hub.find(channel)
	if r != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.requested[channel]
	if s == nil || s.answered {
		return false
	}
	s.answered = true
	if l.answers--; l.answers == 0 && len(l.touched) > 0 {
		signal(l.wake)
	}
	_, again := l.touched[channel]
	switch {
	case !s.on:
		delete(l.requested, channel)
	case again: // it will be requested again
	case r != nil:
		r.confirmed()
	}
	return true
}

// A SubscribeError reports that the Redis user is not permitted to subscribe to a room, or to the
// messages of a user. Config.OnError gets it, as do connections that are joining with JoinFrom, in
// Arrival.Err. Redis does not report which of several rooms it refuses. So the error is reported
// for all rooms without a subscription, in a cluster for those of one hash tag, and the Hub retries
// them.
type SubscribeError struct {
	Room string // or the user's name
	Err  error  // the error of Redis
}

// Error implements error.
func (e *SubscribeError) Error() string {
	return fmt.Sprintf("redisgroup: cannot subscribe to %q: %v", e.Room, e.Err)
}

// Unwrap returns Err.
func (e *SubscribeError) Unwrap() error { return e.Err }
