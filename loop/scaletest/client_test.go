//go:build linux

package scaletest_test

import (
	"bytes"
	"net"
	"sync"
	"time"

	"github.com/loopwheel/loopwheel/loop/internal/engine"
)

// The lives of a client.
const (
	away    = iota // not connected
	talking        // it answers
	silent         // it has vanished without a word
)

// roundTrip is how long a client takes to answer.
const roundTrip = 40 * time.Millisecond

// client is one end of a connection and the address of it; socket is the other.
type client struct {
	net.Conn // nil: what is not implemented here must not be called
	world    *world
	sink     engine.Sink
	heard    time.Duration // when the server heard of it last
	life     uint8
}

func (c *client) LocalAddr() net.Addr  { return place{} }
func (c *client) RemoteAddr() net.Addr { return place{} }
func (c *client) Close() error         { return nil }

type place struct{}

func (place) Network() string { return "memory" }
func (place) String() string  { return "somewhere" }

// socket implements engine.Socket. All of it runs on the loop.
type socket client

// Write is answered if it is a ping.
func (s *socket) Write(p []byte) (int, error) {
	w := s.world
	w.meter.written++
	switch {
	case bytes.Equal(p, ping):
		w.pings++
		if s.life == talking {
			w.pongs.PushBack(event{w.now() + roundTrip, (*client)(s)})
		}
	case bytes.Equal(p, said):
		w.echoes++
	default:
		panic("scaletest: the server wrote " + string(p))
	}
	return len(p), nil
}

func (s *socket) NotifyWritable() bool { return true }
func (s *socket) HasInput() bool       { return false }
func (s *socket) Unacked() int         { return 0 }
func (s *socket) Pause() error         { return nil }
func (s *socket) Resume()              {}
func (s *socket) KeepWriting() bool    { return false }

// CloseWrite is what a client that lives answers by closing.
func (s *socket) CloseWrite() {
	s.evicted()
	if s.life == talking {
		s.world.farewell.PushBack((*client)(s))
	}
}

func (s *socket) Reset() { s.Close() }

func (s *socket) Close() {
	if s.life != away {
		s.evicted()
		s.world.gone((*client)(s))
	}
}

// evicted notes by how much a silent client was evicted too late, or too early.
func (s *socket) evicted() {
	if w := s.world; !w.over {
		late := w.now() - s.heard - idleTimeout
		w.early, w.latest = min(w.early, late), max(w.latest, late)
	}
}

// listener implements net.Listener.
type listener struct {
	world  *world
	once   sync.Once
	closed chan struct{}
}

func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.world.comes:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *listener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *listener) Addr() net.Addr { return place{} }
