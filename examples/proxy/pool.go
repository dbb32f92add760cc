package main

import (
	"errors"
	"sync/atomic"

	"github.com/loopwheel/loopwheel/loop"
)

// A backend is one that connections are passed on to. All loops use it.
type backend struct {
	addr  string
	up    atomic.Bool
	conns atomic.Int64 // open now, those that are being made included
}

// pick returns the backend for the next connection: of those that are up or, if none is, of all, as
// a check may be wrong. those that skip names are left out; nil means that all are.
func (p *proxy) pick(skip func(*backend) bool) *backend {
	for _, mustBeUp := range []bool{true, false} {
		var best *backend
		first := int(p.next.Add(1))
		for i := range p.backends {
			b := p.backends[(first+i)%len(p.backends)]
			if mustBeUp && !b.up.Load() || skip(b) {
				continue
			}
			if best == nil || p.o.least && b.conns.Load() < best.conns.Load() {
				best = b
			}
			if !p.o.least {
				break
			}
		}
		if best != nil {
			return best
		}
	}
	return nil
}

// watch looks on loop l, again and again, whether the backends accept connections.
func (p *proxy) watch(l *loop.Loop) {
	if p.o.check == 0 || l.Index() != 0 { // one loop does that
		return
	}
	for _, b := range p.backends {
		check := func() {
			d := loop.Dialer{Timeout: min(p.o.check, p.o.connect)}
			d.Dial(l, "tcp://"+b.addr, func(_ *loop.Conn, err error) loop.Handler {
				p.mark(b, err)
				return nil // it is closed
			})
		}
		check()
		l.Every(p.o.check, check)
	}
}

// isOurs reports whether it is the proxy that cannot dial: it is full, or drains. No backend is to
// blame.
func isOurs(err error) bool {
	return errors.Is(err, loop.ErrTooManyConns) || errors.Is(err, loop.ErrServerClosed)
}

// mark notes whether b accepts.
func (p *proxy) mark(b *backend, err error) {
	if isOurs(err) {
		return
	}
	up := err == nil
	if b.up.Swap(up) == up {
		return
	}
	if up {
		p.log.Info().Str("backend", b.addr).Msg("up")
	} else {
		p.log.Warn().Str("backend", b.addr).Err(err).Msg("down")
	}
}
