package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/loopwheel/loopwheel/timing/rediswheel"
)

// The picture: how many tasks are due in each of the seconds to come.
const (
	seconds  = 60
	interval = 500 * time.Millisecond
	rows     = 20
)

// A view is what all open pages see: it is made once, however many look.
type view struct {
	q    *rediswheel.Queue
	work *work
	what string

	lock    sync.Mutex
	lookers int
	latest  []byte
	news    chan struct{} // closed when latest has changed
}

// snapshot is what the page gets.
type snapshot struct {
	Redis   string           `json:"redis"`
	Error   string           `json:"error,omitempty"`
	Now     time.Time        `json:"now"`
	Stats   rediswheel.Stats `json:"stats"`
	Ahead   []int            `json:"ahead"`
	P50     float64          `json:"p50"`
	P99     float64          `json:"p99"`
	Waiting []item           `json:"waiting"`
	Running []item           `json:"running"`
	Dead    []item           `json:"dead"`
	Recent  []outcome        `json:"recent"`
}

func newView(q *rediswheel.Queue, w *work, what string) *view {
	return &view{q: q, work: w, what: what, news: make(chan struct{})}
}

// watch looks at the queue as long as somebody looks at the page.
func (v *view) watch(ctx context.Context) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		v.lock.Lock()
		lookers := v.lookers
		v.lock.Unlock()
		if lookers == 0 {
			continue
		}
		data := v.take(ctx)
		v.lock.Lock()
		v.latest = data
		close(v.news)
		v.news = make(chan struct{})
		v.lock.Unlock()
	}
}

func (v *view) take(ctx context.Context) []byte {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	s := snapshot{Redis: v.what, Now: time.Now()}
	s.Recent, s.P50, s.P99 = v.work.seen()
	var err error
	if s.Stats, s.Ahead, err = v.q.Ahead(ctx, time.Second, seconds); err == nil {
		err = v.lists(ctx, &s)
	}
	if err != nil {
		s.Error = err.Error()
	}
	data, err := json.Marshal(s)
	if err != nil {
		return []byte(fmt.Sprintf("{%q:%q}", "error", err))
	}
	return data
}

func (v *view) lists(ctx context.Context, s *snapshot) error {
	for _, l := range []struct {
		of rediswheel.Status
		to *[]item
	}{{rediswheel.Scheduled, &s.Waiting}, {rediswheel.Running, &s.Running}, {rediswheel.Dead, &s.Dead}} {
		found, err := v.q.List(ctx, l.of, rows)
		if err != nil {
			return err
		}
		*l.to = items(found)
	}
	return nil
}

// next returns a snapshot that is not the one before.
func (v *view) next(ctx context.Context) ([]byte, error) {
	v.lock.Lock()
	news := v.news
	v.lock.Unlock()
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-news:
	}
	v.lock.Lock()
	defer v.lock.Unlock()
	return v.latest, nil
}

func (v *view) look(n int) {
	v.lock.Lock()
	defer v.lock.Unlock()
	v.lookers += n
}

// ServeHTTP sends snapshots as server-sent events, until the page is closed.
func (v *view) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	v.look(1)
	defer v.look(-1)
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	rc := http.NewResponseController(w)
	_ = rc.SetReadDeadline(time.Time{})
	for {
		_ = rc.SetWriteDeadline(time.Now().Add(30 * time.Second))
		data, err := v.next(r.Context())
		if err != nil {
			return
		}
		var event bytes.Buffer
		fmt.Fprintf(&event, "data: %s\n\n", data)
		if _, err := w.Write(event.Bytes()); err != nil || rc.Flush() != nil {
			return
		}
	}
}
