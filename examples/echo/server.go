package main

import (
	"errors"
	"io"

	"github.com/rs/zerolog"

	"github.com/loopwheel/loopwheel/loop"
)

// newServer returns the server that o describes. It is all there is to an echo server; the rest is
// a program around it.
func newServer(o options, log zerolog.Logger) *loop.Server {
	return &loop.Server{
		Addr:        o.addr,
		Codec:       o.codec,
		Accept:      accept,
		IdleTimeout: o.idle,
		NumLoops:    o.loops,
		DrainDelay:  o.delay,
		Logger:      log,
	}
}

// A session is the handler of one connection, and its fields are the connection's state. They need
// no lock: only the connection's loop touches them.
type session struct {
	messages int
}

func accept(c *loop.Conn) loop.Handler {
	c.Log().Info().Int("loop", c.Loop().Index()).Msg("open")
	return &session{}
}

func (s *session) OnMessage(c *loop.Conn, msg []byte) error {
	s.messages++
	return c.Send(msg)
}

func (s *session) OnClose(c *loop.Conn, err error) {
	log := c.Log().With().Int("messages", s.messages).Logger()
	switch {
	case errors.Is(err, loop.ErrIdle):
		log.Info().Msg("evicted: it was silent for too long")
	case errors.Is(err, io.EOF):
		log.Info().Msg("closed by the peer")
	case errors.Is(err, loop.ErrServerClosed):
		log.Info().Msg("closed, as the server stops")
	default:
		log.Warn().Err(err).Msg("closed")
	}
}
