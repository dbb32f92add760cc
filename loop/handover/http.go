package handover

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/loopwheel/loopwheel/loop/internal/sockets"
)

// This file is the listeners besides the Server's.

// A gate is a listener that accepts only while its process is in charge.
type gate struct {
	net.Listener
	key string // of Handover.Listen

	mu   sync.Mutex
	shut chan struct{} // closed when it opens; nil: it is open
	end  chan struct{} // closed by Close
}

func newGate(ln net.Listener) *gate {
	return &gate{Listener: ln, shut: make(chan struct{}), end: make(chan struct{})}
}

// Accept implements net.Listener.
func (g *gate) Accept() (net.Conn, error) {
	for {
		g.mu.Lock()
		shut := g.shut
		g.mu.Unlock()
		if shut != nil {
			select {
			case <-shut:
				continue
			case <-g.end:
				return nil, net.ErrClosed
			}
		}
		nc, err := g.Listener.Accept()
		if err == nil || !errors.Is(err, os.ErrDeadlineExceeded) {
			return nc, err
		}
	}
}

// Close implements net.Listener.
func (g *gate) Close() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case <-g.end:
		return nil
	default:
		close(g.end)
		return g.Listener.Close()
	}
}

// set opens or shuts the gate.
func (g *gate) set(open bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	d, _ := g.Listener.(interface{ SetDeadline(time.Time) error })
	switch {
	case open && g.shut != nil:
		_ = d.SetDeadline(time.Time{})
		close(g.shut)
		g.shut = nil
	case !open && g.shut == nil:
		g.shut = make(chan struct{})
		_ = d.SetDeadline(time.Unix(1, 0))
	}
}

// Listen returns a listener that moves to the next process under this name. If the previous process
// had a listener with this name at the same address, Listen returns that one; otherwise it opens a
// new one. The listener accepts only while this process is in charge. Listen must be called before
// Ready. Run and Close close the listener.
func (h *Handover) Listen(name, network, addr string) (net.Listener, error) {
	key := name + " " + network + " " + addr
	h.mu.Lock()
	defer h.mu.Unlock()
	var ln net.Listener
	if h.from != nil {
		if err := h.from.err(); err != nil {
			return nil, err
		}
		ln = h.from.named[key]
		delete(h.from.named, key)
	}
	if ln == nil {
		var err error
		if ln, err = (sockets.System{}).Listen(context.Background(), net.ListenConfig{}, network, addr); err != nil {
			return nil, fmt.Errorf("handover: %s: %w%s", name, err, sockets.ListenAdvice(err, network, addr))
		}
	}
	g := newGate(ln)
	g.key = key
	h.gates = append(h.gates, g)
	return g, nil
}

// A web is an HTTP server that moves.
type web struct {
	*http.Server
	mu   sync.Mutex
	busy map[net.Conn]struct{} // with a request in hand
}

// ServeHTTP opens a listener at a TCP address, and returns; an error is that of Listen, or that s
// has a TLSConfig without a certificate. Then h serves s there while this process is in charge,
// with TLS if s has a TLSConfig. The next process takes over the listener if it serves the same
// name at the same address. The handover waits up to Config.Patience for requests in progress, and
// closes idle connections. After it, requests have until the end of Drain.Timeout, and at least
// Config.Timeout after the drain. If this process drains before a next one has taken over, new
// connections are refused from the start of the drain, or from the end of Drain.Delay with
// KeepAccepting; requests in progress have Config.Timeout after the drain. ServeHTTP must be called
// before Ready. h owns s from the call on, and s.Addr has the actual port.
func (h *Handover) ServeHTTP(name, addr string, s *http.Server) error {
	if c := s.TLSConfig; c != nil && len(c.Certificates) == 0 && c.GetCertificate == nil && c.GetConfigForClient == nil {
		return fmt.Errorf("handover: %s: the TLSConfig has no certificate", name)
	}
	ln, err := h.Listen(name, "tcp", addr)
	if err != nil {
		return err
	}
	s.Addr = ln.Addr().String()
	w := &web{Server: s, busy: make(map[net.Conn]struct{})}
	before := s.ConnState
	s.ConnState = func(nc net.Conn, state http.ConnState) {
		w.mu.Lock()
		if state == http.StateActive {
			w.busy[nc] = struct{}{}
		} else {
			delete(w.busy, nc)
		}
		w.mu.Unlock()
		if before != nil {
			before(nc, state)
		}
	}
	h.mu.Lock()
	h.webs = append(h.webs, w)
	h.mu.Unlock()
	h.serving.Go(func() {
		defer ln.Close() // a client is rather refused than kept waiting
		if s.TLSConfig != nil {
			err = s.ServeTLS(ln, "", "")
		} else {
			err = s.Serve(ln)
		}
		if !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, net.ErrClosed) {
			h.log(func() { h.srv.Logger.Error().Err(err).Str("name", name).Msg("handover: an HTTP server has ended") })
		}
	})
	return nil
}

// rest reports whether no request is in hand.
func (w *web) rest() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.busy) == 0
}
