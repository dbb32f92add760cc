package redisgroup

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// A feed is the connection of a link for subscriptions. It is made anew when it breaks, and all
// that is wanted is subscribed to again: by us, as go-redis does it in one command, which a cluster
// refuses.
type feed struct {
	link *link
	wake chan struct{}

	mu   sync.Mutex
	subs map[string]*subscription // by channel
	todo map[string]*subscription // that are not as they should be

	renewalsMu sync.Mutex // taken last, and so by those who hold a room's lock
	renewals   []*room    // that want to be subscribed once more
}

// A subscription is what is wanted of a channel, and what was said about it on this connection.
type subscription struct {
	room      *room
	wanted    bool
	on        bool // SUBSCRIBE was the last that was sent
	sent      int  // SUBSCRIBEs
	confirmed int
	renewal   int // of the room's, see order
	renewed   int // that the last SUBSCRIBE was for
}

func (f *feed) init(l *link) {
	f.link, f.wake = l, make(chan struct{}, 1)
	f.subs, f.todo = make(map[string]*subscription), make(map[string]*subscription)
}

// want has r subscribed.
func (f *feed) want(r *room) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.subs[r.channel]
	if s == nil {
		s = &subscription{}
		f.subs[r.channel] = s
	}
	fresh := s.room != r
	s.room, s.wanted, s.renewal = r, true, r.renewals()
	if s.on && s.confirmed == s.sent && fresh { // it had been dropped a moment ago
		s.renewed = s.renewal
		r.confirmed(s.renewed)
		delete(f.todo, r.channel)
		return
	}
	f.todo[r.channel] = s
	f.signal()
}

// renewSoon has r subscribed once more, if it is still wanted then. r.mu is held.
func (f *feed) renewSoon(r *room) {
	f.renewalsMu.Lock()
	f.renewals = append(f.renewals, r)
	f.renewalsMu.Unlock()
	f.signal()
}

// renew adds to what there is to do the rooms that want to be subscribed once more. f.mu is held.
func (f *feed) renew() {
	f.renewalsMu.Lock()
	rooms := f.renewals
	f.renewals = nil
	f.renewalsMu.Unlock()
	for _, r := range rooms {
		s := f.subs[r.channel]
		if s == nil || s.room != r || !s.wanted {
			continue
		}
		if s.renewal = r.renewals(); s.renewal != s.renewed {
			f.todo[r.channel] = s
		}
	}
}

// drop has r unsubscribed.
func (f *feed) drop(r *room) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.subs[r.channel]
	if s == nil || s.room != r {
		return
	}
	s.wanted = false
	f.todo[r.channel] = s
	f.signal()
}

func (f *feed) signal() {
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// Times of a connection.
const (
	pingEvery = 2 * time.Second // when nothing comes
	maxSilent = 3               // pings without any answer, and the connection is given up
	steady    = 5 * time.Second // a connection that lived for so long is made anew at once
	// maxChannels is for how many channels one command subscribes.
	maxChannels = 512
)

// run keeps a connection.
func (f *feed) run() {
	var delays backoff
	for f.link.hub.ctx.Err() == nil {
		began := time.Now()
		err := f.session()
		if time.Since(began) > steady {
			delays.reset()
		}
		if f.link.hub.ctx.Err() != nil {
			return
		}
		f.link.hub.cfg.Logger.Warn().Err(err).Str("redis", f.link.addr).Msg("redisgroup: subscriptions lost; connecting again")
		if f.link.hub.topo.cluster != nil {
			f.link.hub.topo.reload()
		}
		if delays.tries == 0 {
			delays.tries++ // at once
		} else if !f.link.hub.topo.pause(delays.next()) {
			return
		}
	}
}

var errOneDial = errors.New("redisgroup: a connection is not used again")

// dial returns a client that makes one connection in its life: go-redis would replace a broken one
// by itself, and subscribe to all its channels in one command.
func (f *feed) dial() *redis.Client {
	opt := quiet(f.link.client.Options())
	opt.PoolSize, opt.MinIdleConns = 1, 0
	var used atomic.Bool
	inner := opt.Dialer
	opt.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		if used.Swap(true) {
			return nil, errOneDial
		}
		return inner(ctx, network, addr)
	}
	return redis.NewClient(opt)
}

// session is the life of one connection.
func (f *feed) session() error {
	ctx, cancel := context.WithCancel(f.link.hub.ctx)
	defer cancel()
	client := f.dial()
	defer client.Close()
	ps := client.Subscribe(ctx)
	defer ps.Close()
	if err := ps.Ping(ctx); err != nil {
		return err
	}
	if err := f.link.hub.topo.ready(ctx); err != nil {
		return err
	}
	f.link.hub.stats.connects.Add(1)
	f.begin()
	ended := make(chan error, 1)
	go func() { ended <- f.read(ctx, ps) }()
	for {
		select {
		case err := <-ended:
			return err
		case <-f.wake:
		case <-ctx.Done():
			_ = ps.Close() // which ends read
			<-ended
			return ctx.Err()
		}
		if err := f.write(ctx, ps); err != nil {
			_ = ps.Close()
			<-ended
			return err
		}
	}
}

// begin has everything subscribed on a new connection.
func (f *feed) begin() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for channel, s := range f.subs {
		s.on, s.sent, s.confirmed = false, 0, 0
		if !s.wanted {
			delete(f.subs, channel)
			delete(f.todo, channel)
			continue
		}
		s.room.lostSubscription()
		f.todo[channel] = s
	}
	f.signal()
}

// write sends what there is to do, in commands of many channels; in a cluster, of one bucket each.
func (f *feed) write(ctx context.Context, ps *redis.PubSub) error {
	on, off := f.take()
	sub, unsub := ps.Subscribe, ps.Unsubscribe
	if f.link.hub.topo.sharded.Load() {
		sub, unsub = ps.SSubscribe, ps.SUnsubscribe
	}
	for _, channels := range off {
		if err := unsub(ctx, channels...); err != nil {
			return err
		}
	}
	for _, channels := range on {
		if err := sub(ctx, channels...); err != nil {
			return err
		}
	}
	return nil
}

// take takes what there is to do.
func (f *feed) take() (on, off [][]string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.renew()
	ons, offs := make(map[int][]string), make(map[int][]string)
	for channel, s := range f.todo {
		switch {
		case s.wanted && (!s.on || s.renewed != s.renewal):
			s.on, s.renewed = true, s.renewal
			s.sent++
			ons[s.room.bucket] = append(ons[s.room.bucket], channel)
		case !s.wanted && s.on:
			s.on = false
			offs[s.room.bucket] = append(offs[s.room.bucket], channel)
			if s.sent == s.confirmed {
				delete(f.subs, channel)
			}
		case !s.wanted:
			delete(f.subs, channel)
		}
	}
	clear(f.todo)
	return chunks(ons), chunks(offs)
}

// chunks divides lists into commands.
func chunks(lists map[int][]string) (all [][]string) {
	for _, list := range lists {
		for len(list) > maxChannels {
			all = append(all, list[:maxChannels])
			list = list[maxChannels:]
		}
		all = append(all, list)
	}
	return all
}

// read takes what comes until the connection breaks, or is silent in spite of pings.
func (f *feed) read(ctx context.Context, ps *redis.PubSub) error {
	silent := 0
	for {
		m, err := ps.ReceiveTimeout(ctx, pingEvery)
		if err != nil {
			var timeout net.Error
			if !errors.As(err, &timeout) || !timeout.Timeout() || ctx.Err() != nil {
				return err
			}
			if silent++; silent > maxSilent {
				return err
			}
			if err := ps.Ping(ctx); err != nil {
				return err
			}
			continue
		}
		silent = 0
		switch m := m.(type) {
		case *redis.Message:
			f.link.hub.receive(m.Channel, m.Payload)
		case *redis.Subscription:
			f.answered(m)
		}
	}
}

// answered takes a confirmation, or the news that a slot has moved away.
func (f *feed) answered(m *redis.Subscription) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.subs[m.Channel]
	if s == nil {
		return
	}
	switch m.Kind {
	case "subscribe", "ssubscribe":
		s.confirmed++
		switch {
		case s.confirmed != s.sent:
		case s.wanted && s.on:
			s.room.confirmed(s.renewed)
		case !s.wanted && !s.on:
			delete(f.subs, m.Channel)
		}
	case "sunsubscribe":
		if s.wanted && s.on && s.confirmed == s.sent { // unasked: the slot is another server's now
			s.on = false
			f.moved(s.room)
		}
	}
}

// moved has a subscription made anew where its slot is now: there may be a while until that is
// known. f.mu is held.
func (f *feed) moved(r *room) {
	topo := f.link.hub.topo
	r.lostSubscription()
	topo.reload()
	_, _ = f.link.hub.timers.AfterFunc(2*reloadWait, func() {
		topo.hub.ifThere(r, func() {
			if l := topo.link(r.bucket); l == f.link {
				l.in.want(r)
			}
		})
	})
}
