package redisgroup

import (
	"context"
	"errors"
	"net"
	"sync"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/auth"
)

var errOneDial = errors.New("redisgroup: a connection is not used again")

// dial returns a connection, with the client that made it in its life: go-redis says who we are, and
// is not used then. It would replace a broken one by itself, and subscribe to all its channels in
// one command. When ctx ends the connection is closed: a read or write that Redis has no answer to
// would last for as long as the client's timeouts.
func (f *feed) dial(ctx context.Context, who *identity) (*redis.Client, *wire, error) {
	opt := quiet(f.link.client.Options())
	if err := who.of(opt); err != nil {
		return nil, nil, err
	}
	opt.PoolSize, opt.MinIdleConns, opt.Protocol = 1, 0, 3
	var conn net.Conn
	inner := opt.Dialer
	opt.Dialer = func(dialing context.Context, network, addr string) (net.Conn, error) {
		if conn != nil {
			return nil, errOneDial
		}
		c, err := inner(dialing, network, addr)
		if err == nil {
			conn = c
			context.AfterFunc(ctx, func() { _ = c.Close() })
		}
		return c, err
	}
	client := redis.NewClient(opt)
	if err := client.Ping(ctx).Err(); err != nil {
		_ = client.Close()
		return nil, nil, err
	}
	w := &wire{
		Conn: madeDirect(conn), patience: opt.WriteTimeout, shared: f.link.hub.topo.cluster == nil, denied: f.denied,
		answers: make(chan struct{}, 1),
	}
	if w.patience <= 0 {
		w.patience = (maxSilent + 1) * pingEvery
	}
	return client, w, nil
}

// An identity is who a connection is for Redis, if its user has a StreamingCredentialsProvider:
// go-redis would say each change on a connection that it takes for idle, and would read its answer
// from between ours. So the wire says it, in order with all else.
type identity struct {
	hub     *Hub
	changed chan struct{} // has a token when there are credentials that were not said

	mu   sync.Mutex
	now  auth.Credentials // nil: there are none yet
	stop auth.UnsubscribeFunc
}

func newIdentity(h *Hub) *identity { return &identity{hub: h, changed: make(chan struct{}, 1)} }

// of has a client that is made with opt ask who it is when it connects, in place of listening.
func (i *identity) of(opt *redis.Options) error {
	provider := opt.StreamingCredentialsProvider
	if provider == nil {
		return nil
	}
	first, stop, err := provider.Subscribe(i)
	if err != nil {
		return err
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.stop = stop
	if i.now == nil { // else it has changed already
		i.now = first
	}
	opt.StreamingCredentialsProvider = nil
	opt.CredentialsProviderContext = func(context.Context) (username, password string, err error) {
		username, password = i.take()
		return username, password, nil
	}
	return nil
}

// take returns who it is now, which is then said.
func (i *identity) take() (username, password string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	select {
	case <-i.changed:
	default:
	}
	return i.now.BasicAuth()
}

// OnNext implements auth.CredentialsListener.
func (i *identity) OnNext(c auth.Credentials) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.now = c
	select {
	case i.changed <- struct{}{}:
	default:
	}
}

// OnError implements auth.CredentialsListener. Redis will say so when it minds.
func (i *identity) OnError(err error) {
	i.hub.cfg.Logger.Warn().Err(err).Msg("redisgroup: no new credentials")
}

// close ends listening.
func (i *identity) close() {
	i.mu.Lock()
	stop := i.stop
	i.stop = nil
	i.mu.Unlock()
	if stop != nil {
		_ = stop()
	}
}
