package sockets

import (
	"cmp"
	"syscall"
	"time"

	"github.com/loopwheel/loopwheel/loop/internal/engine"
)

// Options are what a listening socket is given before it is bound, and its connections inherit.
// Zeros set nothing.
type Options struct {
	SendBuffer    int // bytes
	ReceiveBuffer int // bytes
	ReusePort     bool
	UserTimeout   time.Duration
}

// Clean returns a hook like user, but that takes off again what CleanFD does. Of nil it returns nil.
func Clean(user engine.Control) engine.Control {
	if user == nil {
		return nil
	}
	return func(network, address string, c syscall.RawConn) error {
		if err := user(network, address, c); err != nil {
			return err
		}
		return c.Control(CleanFD)
	}
}

// withFD calls f with the descriptor of s, if it has one.
func withFD(s any, f func(fd int) error) (err error) {
	c, ok := s.(syscall.Conn)
	if !ok {
		return nil
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	controlErr := raw.Control(func(fd uintptr) { err = f(int(fd)) })
	return cmp.Or(err, controlErr)
}
