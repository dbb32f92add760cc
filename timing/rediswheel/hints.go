package rediswheel

import (
	"context"
	"errors"
	"net"
	"strings"

	"github.com/redis/go-redis/v9"
)

// listen passes on what is published, until ctx ends. Messages are hints: what is lost is noticed
// within a refresh, so while the worker is busy they are dropped rather than kept.
func (w *worker) listen(ctx context.Context) {
	for n := 0; ctx.Err() == nil; n++ {
		if w.subscribe(ctx) {
			n = 0
		}
		sleep(ctx, pause(n))
	}
}

// subscribe listens with one subscription until it fails, and reports whether it heard anything.
// Owners publish a pulse per refresh: if all is silent for longer, the connection is asked whether
// it lives.
func (w *worker) subscribe(ctx context.Context) (heard bool) {
	sub := w.q.client.Subscribe(ctx, w.q.channel)
	defer sub.Close()
	stop := context.AfterFunc(ctx, func() { _ = sub.Close() })
	defer stop()
	for silent := false; ctx.Err() == nil; {
		v, err := sub.ReceiveTimeout(ctx, 4*w.q.cfg.Refresh)
		var slow net.Error
		switch {
		case err == nil:
			heard, silent = true, false
			w.pass(v)
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

func (w *worker) pass(v any) {
	var m message
	switch v := v.(type) {
	case *redis.Subscription:
		m = message{word: "lost"} // what was published before
	case *redis.Message:
		m, _ = parse(v.Payload)
	}
	select {
	case w.messages <- m:
	default:
	}
}

// parse takes a message apart.
func parse(payload string) (m message, ok bool) {
	words := strings.Fields(payload)
	if len(words) < 2 {
		return m, false
	}
	return message{words[0], words[1:]}, true
}
