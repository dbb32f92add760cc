package main

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"errors"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/loopwheel/loopwheel/handler"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/handover"
)

const (
	loginWithin    = 5 * time.Second  // a connection that has not logged in by then is closed
	pingAfter      = 30 * time.Second // of silence; a device that misses two pings is dead
	frameWithin    = 10 * time.Second // a frame that has begun ends
	commandTimeout = 10 * time.Second // a command is answered
	maxCommands    = 64               // of one device, without an answer yet
	tokenSize      = sha256.Size
)

// Reasons for which the gateway closes connections.
var (
	errNoLogin   = errors.New("no login within the time, or another message before it")
	errToken     = errors.New("the token is not this device's")
	errElsewhere = errors.New("the device has logged in again")
	errKind      = errors.New("a message that devices do not send")
	errNotNow    = errors.New("the device has to log in, or to answer, before it moves")
)

// A gateway is what all connections and all HTTP handlers share. Any goroutine may use its fields.
type gateway struct {
	key     []byte   // devices' tokens are made with it
	names   []string // of the HTTP API
	devices *handler.Registry[string]
	outbox  outbox
	moved   atomic.Bool // devices have moved to the next process
}

// server returns the server for devices at an address. The caller adds TLS. When the server
// ends, devices are served for as long as drain, and then sent away, one by one, within as much
// again: all at once would be a burden on the process to which they come back.
func (g *gateway) server(addr string, drain time.Duration, log zerolog.Logger) *loop.Server {
	return &loop.Server{
		Addr:     addr,
		Codec:    frames{},
		Accept:   handler.Chain(g.accept, handler.Heartbeat{Interval: pingAfter, Message: message(ping, 0, nil)}),
		Timeouts: loop.Timeouts{Frame: frameWithin},
		Drain:    loop.Drain{Delay: drain, Window: drain, Timeout: drain + commandTimeout + time.Second},
		Logger:   log,
	}
}

// A session is the connection of one device. Its methods run on the loop of that connection, one at
// a time, so its fields need no lock.
type session struct {
	gateway    *gateway
	name       string // "" until the device has logged in
	loginTimer loop.Timer
	commands   *handler.Calls[[]byte] // those that wait for the device's answer
	delivering bool                   // one of them is a kept message
}

func (g *gateway) accept(c *loop.Conn) loop.Handler {
	s := &session{
		gateway:  g,
		commands: handler.NewCalls[[]byte](c, handler.CallConfig{Timeout: commandTimeout, Max: maxCommands, IDBits: 16}),
	}
	if name, moved := c.Saved(); moved { // it has logged in at the process before
		s.name = string(name)
		g.devices.Enter(s.name, c)
		s.deliver(c) // what has come meanwhile
	} else {
		s.loginTimer = c.AfterFunc(loginWithin, func() { c.CloseWithError(errNoLogin) })
	}
	return s
}

// Save implements loop.Saver: the next process goes on with a device that has logged in, and of
// which nobody waits for an answer.
func (s *session) Save(*loop.Conn) ([]byte, error) {
	if s.name == "" || s.commands.Stats().Pending > 0 {
		return nil, errNotNow
	}
	return []byte(s.name), nil
}

// OnMessage implements loop.Handler. An error closes the connection.
func (s *session) OnMessage(c *loop.Conn, msg []byte) error {
	kind, id, payload := split(msg)
	switch {
	case s.name == "" && kind == login:
		return s.login(c, payload)
	case s.name == "":
		return errNoLogin
	case kind == report:
		c.Log().Info().Str("device", s.name).Bytes("report", payload).Send()
	case kind == answer: // the answer outlives this call, but payload does not
		s.commands.Answer(uint64(id), bytes.Clone(payload))
	case kind != pong: // the heartbeat has seen that bytes came, which is all a pong is for
		return errKind
	}
	return nil
}

// OnClose implements loop.Handler. Timers stop, the registry forgets the connection, and its
// commands fail: all of that happens by itself.
func (s *session) OnClose(c *loop.Conn, err error) {
	switch {
	case errors.Is(err, handover.ErrMoved):
		s.gateway.moved.Store(true)
	case errors.Is(err, handover.ErrNotTaken):
		return // the device is connected to the process before: this was a copy, or has stayed there
	}
	c.Log().Info().Str("device", s.name).AnErr("reason", err).Msg("closed")
}

func (s *session) login(c *loop.Conn, payload []byte) error {
	if len(payload) <= tokenSize {
		return errToken
	}
	token, name := payload[:tokenSize], payload[tokenSize:]
	mac := hmac.New(sha256.New, s.gateway.key)
	mac.Write(name)
	if !hmac.Equal(token, mac.Sum(nil)) {
		return errToken
	}
	s.name = string(name)
	s.loginTimer.Stop()
	c.Log().Info().Str("device", s.name).Msg("logged in")
	if err := c.Send(message(login, 0, nil)); err != nil {
		return err
	}
	// A device may come back before its old connection has ended, which may live on another loop.
	s.gateway.devices.Enter(s.name, c).CloseWithError(errElsewhere)
	s.deliver(c)
	return nil
}

// command sends a command. done is called on the loop, once: with the answer, or with the reason
// why there is none, such as the end of the connection. The connection is busy until then, so that
// a drain waits for the answer.
func (s *session) command(c *loop.Conn, payload []byte, done func(answer []byte, err error)) {
	id, err := s.commands.Begin(0, func(answer []byte, err error) {
		c.SetBusy(s.commands.Stats().Pending > 0)
		done(answer, err)
	})
	if err != nil {
		done(nil, err)
		return
	}
	c.SetBusy(true)
	_ = c.Send(message(command, uint16(id), payload)) // an error closes c, and so ends the command
}

// deliver sends the oldest message that is kept for the device, as a command, and the next one when
// that is answered. A message is kept until then: when the connection breaks, it is sent again on
// the next one. So the device may get it twice, but does not miss it.
func (s *session) deliver(c *loop.Conn) {
	m := s.gateway.outbox.oldest(s.name)
	if m == nil || s.delivering {
		return
	}
	s.delivering = true
	s.command(c, *m, func(_ []byte, err error) {
		s.delivering = false
		if err != nil {
			c.CloseWithError(err) // a device that does not answer has to come back
			return
		}
		s.gateway.outbox.remove(s.name, m)
		s.deliver(c)
	})
}
