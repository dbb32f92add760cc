package rediswheel

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// ears hear what is published: on the queue's channel what workers tell each other, and on the
// channel of each shard that the worker owns, which nobody else hears, what is due there earlier
// than it would look. Messages are hints: what is lost is noticed within a refresh, so while the
// worker is busy they are dropped rather than kept.
type ears struct {
	w       *worker
	lock    sync.Mutex
	wanted  map[string]bool // channels of shards
	changed chan struct{}   // wanted has
}

// want says whether the messages of a shard are for this worker.
func (e *ears) want(shard int, yes bool) {
	e.lock.Lock()
	defer e.lock.Unlock()
	if channel := e.w.q.keys[shard][ownKey]; e.wanted[channel] != yes {
		e.wanted[channel] = yes
		notify(e.changed)
	}
}

// listen listens until ctx ends.
func (e *ears) listen(ctx context.Context) {
	for n := 0; ctx.Err() == nil; n++ {
		if e.subscribe(ctx) {
			n = 0
		}
		sleep(ctx, pause(n))
	}
}

// silence is after how long the connection is asked whether it lives.
const silence = 30 * time.Second

// patience is for how long a worker hears nothing before it asks. The more there are, the more seldom
// each does: owners may miss hints, and look each refresh, others a call for help.
func (e *ears) patience() time.Duration {
	e.lock.Lock()
	defer e.lock.Unlock()
	crowd := max(e.w.crowd.Load(), 1)
	for _, yes := range e.wanted {
		if yes {
			return silence * time.Duration(min(crowd, int64(len(e.w.loop.shards))))
		}
	}
	return silence * time.Duration(crowd)
}

// subscribe listens with one connection until it fails, and reports whether it heard anything.
func (e *ears) subscribe(ctx context.Context) (heard bool) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	sub := e.w.q.client.Subscribe(ctx, e.w.q.channel)
	defer sub.Close()
	stop := context.AfterFunc(ctx, func() { _ = sub.Close() })
	defer stop()
	var tuning sync.WaitGroup
	defer tuning.Wait()
	defer cancel()
	tuning.Go(func() { e.tune(ctx, sub) })
	for silent := false; ctx.Err() == nil; {
		patience := silence
		if !silent {
			patience = e.patience()
		}
		v, err := sub.ReceiveTimeout(ctx, patience)
		var slow net.Error
		switch {
		case err == nil:
			heard, silent = true, false
			e.pass(v)
		case errors.As(err, &slow) && slow.Timeout() && !silent:
			silent = true
			if sub.Ping(ctx) != nil {
				return heard
			}
		default:
			return heard
		}
	}
	return heard
}

// tune keeps the subscription to what is wanted.
func (e *ears) tune(ctx context.Context, sub *redis.PubSub) {
	has := make(map[string]bool)
	for {
		var more, less []string
		e.lock.Lock()
		for channel, yes := range e.wanted {
			switch {
			case yes && !has[channel]:
				more = append(more, channel)
			case !yes && has[channel]:
				less = append(less, channel)
			}
			has[channel] = yes
		}
		e.lock.Unlock()
		if len(more) > 0 && sub.Subscribe(ctx, more...) != nil || len(less) > 0 && sub.Unsubscribe(ctx, less...) != nil {
			_ = sub.Close() // and all is subscribed anew
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-e.changed:
		}
	}
}

func (e *ears) pass(v any) {
	var m message
	switch v := v.(type) {
	case *redis.Subscription:
		if v.Kind != "subscribe" || v.Channel == e.w.q.channel {
			return
		}
		m = message{"lost", []string{e.w.q.hints[v.Channel]}} // what was published before
	case *redis.Message:
		if v.Channel == e.w.q.channel {
			m = parse(v.Payload)
		} else {
			m = message{"due", []string{e.w.q.hints[v.Channel], v.Payload}}
		}
	}
	select {
	case e.w.messages <- m:
	default:
	}
}

// parse takes a message of another worker apart.
func parse(payload string) message {
	words := strings.Fields(payload)
	if len(words) == 0 {
		return message{}
	}
	return message{words[0], words[1:]}
}
