package main

import (
	"crypto/rand"
	"errors"
	"io"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/rs/zerolog"

	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/handover"
)

var errNoBackend = errors.New("no backend accepts")

// A proxy is what all connections share.
type proxy struct {
	o        options
	log      zerolog.Logger
	backends []*backend
	next     atomic.Uint32 // round-robin
}

func newProxy(o options, log zerolog.Logger) *proxy {
	p := &proxy{o: o, log: log}
	for _, addr := range o.to {
		b := &backend{addr: addr}
		b.up.Store(true) // until a check says otherwise
		p.backends = append(p.backends, b)
	}
	return p
}

func (p *proxy) server() *loop.Server {
	return &loop.Server{
		Addr:          p.o.addr,
		Accept:        p.accept,
		OnStart:       p.watch,
		ProxyProtocol: p.o.trusted,
		Drain: loop.Drain{
			Timeout: p.o.drain,
			Window:  p.o.drain / 2, // connections that end by themselves are not cut short
		},
		Logger: p.log,
	}
}

// A client is a connection on its way to a backend. From then on it is in a pipe, and nothing is
// called but OnClose.
type client struct {
	proxy  *proxy
	conn   *loop.Conn
	tried  []*backend
	cancel func()
	name   string // of its connection to a backend
}

// accept makes the client wait until a backend has accepted. One that moves here from the process
// before gets the backend that it had.
func (p *proxy) accept(c *loop.Conn) loop.Handler {
	c.PauseRead()
	k := &client{proxy: p, conn: c, name: rand.Text()}
	state, _ := c.Saved()
	if name, addr, ok := strings.Cut(string(state), " "); ok {
		k.name = name
		if i := slices.IndexFunc(p.backends, func(b *backend) bool { return b.addr == addr }); i >= 0 {
			k.dial(p.backends[i])
			return k
		}
	}
	k.dialNext()
	return k
}

// Save implements loop.Saver, with the name and the backend.
func (k *client) Save(*loop.Conn) ([]byte, error) {
	if len(k.tried) == 0 {
		return nil, errNoBackend
	}
	return []byte(k.name + " " + k.tried[len(k.tried)-1].addr), nil
}

// dialNext tries one backend after the other.
func (k *client) dialNext() {
	if b := k.proxy.pick(k.hasTried); b != nil {
		k.dial(b)
	} else {
		k.conn.CloseWithError(errNoBackend)
	}
}

func (k *client) dial(b *backend) {
	p := k.proxy
	k.tried = append(k.tried, b)
	b.conns.Add(1)
	d := loop.Dialer{Timeout: p.o.connect, MoveAs: k.name}
	stop := d.Dial(k.conn.Loop(), "tcp://"+b.addr, func(c *loop.Conn, err error) loop.Handler {
		k.cancel = nil
		if err == nil {
			return k.join(c, b)
		}
		b.conns.Add(-1)
		if isOurs(err) {
			k.conn.CloseWithError(err)
			return nil
		}
		p.mark(b, err)
		k.dialNext()
		return nil
	})
	k.cancel = func() {
		stop()
		b.conns.Add(-1)
	}
}

func (k *client) hasTried(b *backend) bool { return slices.Contains(k.tried, b) }

// join pipes the client to its backend.
func (k *client) join(c *loop.Conn, b *backend) loop.Handler {
	if _, moved := c.Saved(); k.proxy.o.header && !moved {
		if _, err := c.Write(proxyHeader(k.conn.RemoteAddr(), k.conn.LocalAddr())); err != nil {
			k.conn.CloseWithError(err)
			return nil
		}
	}
	loop.Pipe(k.conn, c, loop.PipeConfig{
		IdleTimeout: k.proxy.o.idle,
		Done: func(in, out uint64, err error) {
			b.conns.Add(-1)
			if errors.Is(err, handover.ErrMoved) || errors.Is(err, handover.ErrNotTaken) {
				return // it goes on in the other process
			}
			p := k.proxy.log.Info().Str("backend", b.addr).Uint64("in", in).Uint64("out", out)
			p.AnErr("reason", err).Msg("ended")
		},
	})
	k.conn.ResumeRead()
	return quiet{}
}

// OnMessage is not called: the client is paused, and then it is piped.
func (k *client) OnMessage(*loop.Conn, []byte) error { return nil }

// OnClose gives up what is on its way.
func (k *client) OnClose(c *loop.Conn, err error) {
	if k.cancel != nil {
		k.cancel()
	}
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, loop.ErrServerClosed) {
		c.Log().Debug().Err(err).Msg("closed")
	}
}

// quiet is the handler of a backend's connection.
type quiet struct{}

func (quiet) OnMessage(*loop.Conn, []byte) error { return nil }
func (quiet) OnClose(*loop.Conn, error)          {}
func (quiet) Save(*loop.Conn) ([]byte, error)    { return nil, nil }
