package loop

import (
	"cmp"
	"fmt"
	"math"
	"net"
	"reflect"
	"syscall"
	"time"

	"github.com/loopwheel/loopwheel/internal/defaults"
	"github.com/loopwheel/loopwheel/loop/internal/sockets"
)

// TCPOptions are options of TCP sockets, as listener and connections have them. The zero of each
// means what Go, or the system, does by itself. An option that the system does not know
// (UserTimeout elsewhere than on Linux) fails at Start.
type TCPOptions struct {
	// KeepAlive is when a connection that is silent is probed, and how often until it counts as
	// broken. Zeros: after 15 s, every 15 s, 9 times. A negative Idle turns it off, and Enable has
	// no meaning here.
	KeepAlive net.KeepAliveConfig

	// UserTimeout breaks a connection when what was sent has not been acknowledged for so long
	// (TCP_USER_TIMEOUT), or when the peer is alive and reads nothing for so long while output
	// waits: its window is closed then. To find only peers that have vanished, use KeepAlive; to
	// end those that do not read after a time of your own, an OnIdle hook with WriteStalled. 0
	// means the system's time, on Linux about 15 minutes.
	UserTimeout time.Duration

	// Backlog is how many connections may wait to be accepted. The system cuts it to its
	// largest (on Linux net.core.somaxconn). 0 means that largest.
	Backlog int

	// SendBuffer and ReceiveBuffer are the kernel's buffers of each connection, in bytes
	// (SO_SNDBUF, SO_RCVBUF); Linux doubles them, for its own needs. With a small SendBuffer a peer
	// that is sent little at a time, and does not read, is found sooner: only what the system does
	// not take waits here. 0 means the system's, fitted to the connection, which is usually better;
	// but a 4,096th of the memory that a cgroup or GOMEMLIMIT allows, if that is less than 1 GiB.
	SendBuffer, ReceiveBuffer int

	// Control is called with the listening socket before it is bound, as that of net.ListenConfig
	// is: for options that are not here, such as IP_TOS, SO_MARK, SO_BINDTODEVICE and SO_REUSEPORT.
	// It comes after these, and holds for unix sockets, too. nil: nothing is to be set. A SO_LINGER
	// with a time is taken off again: it would make each close block the loop.
	Control func(network, address string, c syscall.RawConn) error
}

// check refuses numbers that make no sense.
func (o TCPOptions) check(name string) error {
	return cmp.Or(
		defaults.Set(name+"UserTimeout", &o.UserTimeout, 0, 0),
		defaults.Set(name+"Backlog", &o.Backlog, 0, 0),
		defaults.Set(name+"SendBuffer", &o.SendBuffer, 0, 0),
		defaults.Set(name+"ReceiveBuffer", &o.ReceiveBuffer, 0, 0),
	)
}

// isZero reports whether nothing is set.
func (o TCPOptions) isZero() bool { return reflect.ValueOf(o).IsZero() }

// listenConfig returns what makes package net listen with these options. Connections inherit those
// that control sets.
func (o TCPOptions) listenConfig() net.ListenConfig {
	return net.ListenConfig{KeepAlive: -1, Control: func(network, address string, c syscall.RawConn) error {
		if err := o.ofSocket().Set(network, c); err != nil || o.Control == nil {
			return err
		}
		return sockets.CleanAfter(o.Control)(network, address, c)
	}}
}

func (o TCPOptions) ofSocket() sockets.Options {
	return sockets.Options{SendBuffer: o.SendBuffer, ReceiveBuffer: o.ReceiveBuffer, UserTimeout: o.UserTimeout}
}

// setInherited gives a listener that another process has opened these options in place of its own.
func (o TCPOptions) setInherited(network string, ln net.Listener) error {
	c, ok := ln.(syscall.Conn)
	if !ok {
		return nil
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	err = o.ofSocket().Renew(network, raw)
	if err == nil && o.Control != nil {
		err = sockets.CleanAfter(o.Control)(network, ln.Addr().String(), raw)
	}
	if err == nil {
		err = sockets.SetBacklog(ln, cmp.Or(o.Backlog, math.MaxInt32)) // of which the system takes its largest
	}
	if err != nil {
		return fmt.Errorf("TCP: for the listener of the process before: %w", err)
	}
	return nil
}

// setMoved sets the options of a connection that another process has accepted. What is not set
// stays: it may be the program's own.
func (o TCPOptions) setMoved(c *net.TCPConn) {
	if raw, err := c.SyscallConn(); err == nil {
		_ = o.ofSocket().Set("tcp", raw) // the system took the same for the listener
	}
	o.setKeepAlive(c)
}

// setKeepAlive sets KeepAlive, which package net has set in its own way. Connections inherit the
// other options from the listener.
func (o TCPOptions) setKeepAlive(c *net.TCPConn) {
	alive := o.KeepAlive
	if alive.Enable = alive.Idle >= 0; alive.Enable {
		_ = c.SetKeepAliveConfig(alive)
	} else {
		_ = c.SetKeepAlive(false) // that of an inherited listener
	}
}
