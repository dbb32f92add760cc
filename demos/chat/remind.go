package main

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/loopwheel/loopwheel/handler/redisgroup"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/timing/rediswheel"
)

func reminder(text string) event {
	return event{Type: "remind", Text: "reminder: " + text, At: now()}
}

// remind is a timer of the connection: it dies with it.
func (h *localHouse) remind(s *session, d time.Duration, text string) {
	s.c.AfterFunc(d, func() { send(s.c, reminder(text)) })
	note(s.c, "in %v", d)
}

// reminders are kept in Redis: they outlive connections and servers, and find who is meant wherever
// that is by then.
type reminders struct {
	queue *rediswheel.Queue
	hub   *redisgroup.Hub
	stop  context.CancelFunc
	ended sync.WaitGroup
}

// A remembered reminder is a task's body.
type remembered struct {
	Nick string `json:"nick"`
	Text string `json:"text"`
}

const (
	lookAgain = 5 * time.Second // for somebody who is not here
	keepFor   = 24 * time.Hour  // and after this long no more
)

func openReminders(ctx context.Context, client redis.UniversalClient, hub *redisgroup.Hub) (*reminders, error) {
	q, err := rediswheel.Open(ctx, client, rediswheel.Config{Name: "chat-remind"})
	if err != nil {
		return nil, err
	}
	r := &reminders{queue: q, hub: hub}
	working, stop := context.WithCancel(context.WithoutCancel(ctx))
	r.stop = stop
	r.ended.Go(func() { _ = q.Run(working, rediswheel.HandlerFunc(r.tell)) })
	return r, nil
}

func (r *reminders) close() {
	r.stop()
	r.ended.Wait()
}

var errAway = errors.New("not here")

// tell is called when a reminder is due. Who is away may come back: the page does after a restart.
func (r *reminders) tell(ctx context.Context, t rediswheel.Task) error {
	var m remembered
	if err := json.Unmarshal(t.Body, &m); err != nil {
		return rediswheel.Permanent(err)
	}
	who, _, err := r.hub.Owner(ctx, skeleton(m.Nick))
	if err != nil {
		return err
	}
	_, nick, _ := strings.Cut(who, " ")
	switch {
	case nick != "":
		return r.hub.Send(nick, reminder(m.Text).encode())
	case time.Since(t.Occurred) > keepFor:
		return nil
	}
	return rediswheel.Postpone(lookAgain, errAway)
}

// remind adds a task, off the loop.
func (h *sharedHouse) remind(s *session, d time.Duration, text string) {
	body, err := json.Marshal(remembered{s.nick, text})
	if err != nil {
		note(s.c, "%v", err)
		return
	}
	key := skeleton(s.nick) + " " + h.chat.id + " " + strconv.FormatInt(time.Now().UnixNano(), 36)
	err = loop.Offload(s.c, func(ctx context.Context) error {
		return h.reminders.queue.Add(ctx, rediswheel.Task{Key: key, Delay: d, Body: body})
	}, func(c *loop.Conn, err error) {
		if err != nil {
			note(c, "you will not be reminded: %v", err)
			return
		}
		note(c, "in %v", d)
	})
	if err != nil {
		note(s.c, "%v", err)
	}
}
