package sockets

import (
	"net"
	"syscall"
	"time"

	"github.com/loopwheel/loopwheel/loop/internal/engine"
)

// Options are what a listening socket is given before it is bound, and its connections inherit.
// Zeros set nothing.
type Options struct {
	SendBuffer    int // bytes
	ReceiveBuffer int // bytes
	UserTimeout   time.Duration
	KeepAlive     net.KeepAliveConfig // as Go's zeros are; a negative Idle: none. Only with InheritsKeepAlive
}

// CleanAfter returns a hook that is user and then Clean. Of nil it returns nil.
func CleanAfter(user engine.Control) engine.Control {
	if user == nil {
		return nil
	}
	return func(network, address string, c syscall.RawConn) error {
		if err := user(network, address, c); err != nil {
			return err
		}
		return With(c, Clean)
	}
}
