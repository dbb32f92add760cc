package sockets

import (
	"cmp"
	"syscall"
	"time"
)

// Options are what a listening socket is given before it is bound, and its connections inherit.
// Zeros set nothing.
type Options struct {
	SendBuffer    int // bytes
	ReceiveBuffer int // bytes
	ReusePort     bool
	UserTimeout   time.Duration
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
