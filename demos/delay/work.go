package main

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/loopwheel/loopwheel/timing/rediswheel"
)

// work is what workers do: tasks with a URL are called back, others only noted. Of those, one whose
// body begins with "fail" fails, to be seen among the dead.
type work struct {
	log      zerolog.Logger
	callback rediswheel.HTTPCallback

	lock   sync.Mutex
	recent []outcome
	late   []time.Duration // of the last tasks
}

// An outcome is an attempt that is over.
type outcome struct {
	Key     string    `json:"key"`
	At      time.Time `json:"at"`
	Late    float64   `json:"late"` // milliseconds
	Took    float64   `json:"took"` // milliseconds
	Attempt int       `json:"attempt"`
	Error   string    `json:"error,omitempty"`
}

const (
	maxRecent = 30
	maxLate   = 1000
)

func newWork(o options, log zerolog.Logger) *work {
	w := &work{log: log}
	w.callback.AllowPrivate, w.callback.Secret = o.private, o.secret
	return w
}

func (w *work) config(o options) rediswheel.Config {
	return rediswheel.Config{
		Name: o.name, Concurrency: o.concurrency, MaxAttempts: o.attempts, OnError: func(t rediswheel.Task, err error) {
			if t.Key == "" {
				w.log.Error().Err(err).Msg("redis")
				return
			}
			w.log.Warn().Str("key", t.Key).Int("attempt", t.Attempt).Err(err).Msg("failed")
		},
	}
}

// Handle works on one task.
func (w *work) Handle(ctx context.Context, t rediswheel.Task) error {
	began := time.Now()
	err := w.do(ctx, t)
	w.note(t, began, err)
	if err == nil {
		w.log.Info().Str("key", t.Key).Dur("late", began.Sub(t.Due)).Msg("done")
	}
	return err
}

func (w *work) do(ctx context.Context, t rediswheel.Task) error {
	if t.URL != "" {
		return w.callback.Handle(ctx, t)
	}
	if bytes.HasPrefix(t.Body, []byte("fail")) {
		return errors.New("its body says so")
	}
	return nil
}

func (w *work) note(t rediswheel.Task, began time.Time, err error) {
	o := outcome{Key: t.Key, At: time.Now(), Late: ms(began.Sub(t.Due)), Took: ms(time.Since(began)), Attempt: t.Attempt}
	if err != nil {
		o.Error = err.Error()
	}
	w.lock.Lock()
	defer w.lock.Unlock()
	w.recent = append(w.recent, o)
	w.recent = w.recent[max(0, len(w.recent)-maxRecent):]
	w.late = append(w.late, began.Sub(t.Due))
	w.late = w.late[max(0, len(w.late)-maxLate):]
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// seen returns what was done last, the latest first, and how late tasks were of late: half of them
// and all but one of a hundred no later than this.
func (w *work) seen() (recent []outcome, p50, p99 float64) {
	w.lock.Lock()
	recent, late := slices.Clone(w.recent), slices.Clone(w.late)
	w.lock.Unlock()
	slices.Reverse(recent)
	slices.Sort(late)
	if n := len(late); n > 0 {
		p50, p99 = ms(late[n/2]), ms(late[n*99/100])
	}
	return recent, p50, p99
}
