package rediswheel

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/loopwheel/loopwheel/internal/testkit"
)

const defaultRefresh = 2 * time.Second // of a Config

// Workers that come share the shards, and those that go leave theirs to the others; none is without
// an owner for long.
func TestOwnership(t *testing.T) {
	virtually(t, func(t *testing.T) {
		ctx := context.Background()
		q := open(t, embedded(t), Config{Shards: 64})
		r := newRecorder()
		var stops []func() error
		for range 4 {
			stops = append(stops, start(t, q, r))
			testkit.Pass(10 * time.Second)
		}
		s, err := q.Stats(ctx)
		must(t, err)
		testkit.Want(t, "s.Owners", s.Owners, 4)
		testkit.Want(t, "s.Orphans", s.Orphans, 0)
		for _, stop := range stops[:3] {
			must(t, stop())
		}
		testkit.Pass(3 * defaultRefresh)
		s, err = q.Stats(ctx)
		must(t, err)
		testkit.Want(t, "s.Owners", s.Owners, 1)
		testkit.Want(t, "s.Orphans", s.Orphans, 0)
		must(t, stops[3]())
	})
}

// A line is a way to Redis that can be cut.
type line struct {
	lock  sync.Mutex
	conns []net.Conn
	gone  bool
}

func (l *line) client(like *redis.Client) *redis.Client {
	options := *like.Options()
	dial := options.Dialer
	options.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		l.lock.Lock()
		defer l.lock.Unlock()
		if l.gone {
			return nil, errors.New("the line is cut")
		}
		c, err := dial(ctx, network, addr)
		l.conns = append(l.conns, c)
		return c, err
	}
	return redis.NewClient(&options)
}

func (l *line) cut() {
	l.lock.Lock()
	defer l.lock.Unlock()
	l.gone = true
	for _, c := range l.conns {
		_ = c.Close()
	}
}

// When a worker is gone without a word, whichever it is, its shards are taken within four
// refreshes.
func TestOwnerLost(t *testing.T) {
	for lost := range 3 {
		virtually(t, func(t *testing.T) {
			ctx := context.Background()
			m, client := embeddedServer(t)
			q := open(t, client, Config{Shards: 16})
			owners := func() (all []string) {
				for shard := range q.keys {
					all = append(all, m.HGet(q.keys[shard][ownKey], "worker"))
				}
				return all
			}
			lines := make(map[string]*line) // of workers
			for range 3 {
				l := &line{}
				own := l.client(client)
				defer own.Close()
				defer start(t, open(t, own, Config{}), newRecorder())()
				testkit.Pass(20 * time.Second)
				for _, id := range owners() {
					if lines[id] == nil {
						lines[id] = l
					}
				}
			}
			gone := owners()[0]
			for id := range lines { // another than the first shard's owner
				if lost > 0 && id != gone {
					gone = id
					break
				}
			}
			lines[gone].cut()
			testkit.Pass(4*defaultRefresh + 100*time.Millisecond)
			s, err := q.Stats(ctx)
			if must(t, err); s.Orphans > 0 || slices.Contains(owners(), gone) {
				t.Errorf("%d orphans, owners are %q, without %q", s.Orphans, owners(), gone)
			}
		})
	}
}

// Queues of one name on two databases of one Redis have nothing in common, though all databases
// share channels: what one says of its shards does not keep the other from taking those of a worker
// that is lost.
func TestDatabases(t *testing.T) {
	virtually(t, func(t *testing.T) {
		ctx := context.Background()
		_, client := embeddedServer(t)
		on := func(db int) (*redis.Client, *line) {
			l, options := &line{}, *client.Options()
			options.DB = db
			like := redis.NewClient(&options)
			defer like.Close()
			c := l.client(like)
			t.Cleanup(func() { c.Close() })
			return c, l
		}
		fifth, _ := on(5)
		defer start(t, open(t, fifth, Config{Shards: 1}), newRecorder())()
		testkit.Pass(10 * time.Second)
		first, cut := on(6)
		r := newRecorder()
		defer start(t, open(t, first, Config{Shards: 1}), r)()
		testkit.Pass(10 * time.Second)
		second, _ := on(6)
		q := open(t, second, Config{})
		defer start(t, q, r)()
		testkit.Pass(10 * time.Second)
		must(t, q.Add(ctx, Task{Key: "k", Delay: time.Second}))
		cut.cut()
		testkit.Pass(4*defaultRefresh + 100*time.Millisecond)
		if n := len(r.got()); n != 1 {
			t.Errorf("%d runs", n)
		}
	})
}

// An owner with more to do than places gets help: three workers with two places each are done in
// far less than the 30 s that one would take.
func TestHelp(t *testing.T) {
	virtually(t, func(t *testing.T) {
		ctx := context.Background()
		q := open(t, embedded(t), Config{Shards: 1, Concurrency: 2})
		r := newRecorder()
		r.fail = func(Task) error {
			testkit.Block(time.Second)
			return nil
		}
		var stops []func() error
		for range 3 {
			stops = append(stops, start(t, q, r))
		}
		testkit.Pass(20 * time.Second)
		for i := range 60 {
			must(t, q.Add(ctx, Task{Key: fmt.Sprint(i)}))
		}
		testkit.Pass(17 * time.Second)
		if s := q.Local(); s.Done != 60 {
			t.Errorf("%d of 60 were done in 17 s", s.Done)
		}
		for _, stop := range stops {
			must(t, stop())
		}
	})
}

// What idle workers ask of Redis does not grow with their number, also not soon after they came.
func TestIdleCost(t *testing.T) {
	commands := func(workers int) (soon, later int) {
		virtually(t, func(t *testing.T) {
			m, client := embeddedServer(t)
			q := open(t, client, Config{Shards: 4})
			var stops []func() error
			for range workers {
				stops = append(stops, start(t, q, newRecorder()))
			}
			during := func(d time.Duration) int {
				before := m.CommandCount()
				testkit.Pass(d)
				return m.CommandCount() - before
			}
			testkit.Pass(5 * time.Second)
			soon = during(10 * time.Second)
			testkit.Pass(time.Minute)
			later = during(5 * time.Minute)
			for _, stop := range stops {
				must(t, stop())
			}
		})
		return soon, later
	}
	soon, later := commands(1)
	for _, workers := range []int{6, 24} {
		s, l := commands(workers)
		t.Logf("commands of %d workers: %d soon after they came, %d in five minutes; of one: %d, %d", workers, s, l, soon, later)
		if s > soon*5/4+12 || l > later*6/5 {
			t.Errorf("%d workers ask more than one", workers)
		}
	}
}

// A message of the owner before may come after the claim that made a worker the owner. The worker
// asks Redis which of them is right.
func TestOldNewsOfOwner(t *testing.T) {
	virtually(t, func(t *testing.T) {
		ctx := context.Background()
		client := embedded(t)
		q := open(t, client, Config{Shards: 1})
		r := newRecorder()
		stop := start(t, q, r)
		testkit.Pass(10 * time.Second)
		synctest.Wait()
		news := fmt.Sprint(q.keys[0][ownKey], " other ", 3*defaultRefresh.Milliseconds())
		must(t, client.Publish(ctx, q.channel, news).Err())
		synctest.Wait()
		must(t, q.Add(ctx, Task{Key: "now"}))
		testkit.Pass(defaultRefresh)
		if n := len(r.got()); n != 1 {
			t.Errorf("%d runs within a refresh", n)
		}
		must(t, stop())
	})
}
