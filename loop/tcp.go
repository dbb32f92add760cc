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

// TCPOptions are options of TCP sockets, of the listener and of the connections. The zero value of
// each means the default of Go or the system. An option that the system does not support
// (UserTimeout on systems other than Linux) makes Start fail.
type TCPOptions struct {
	// KeepAlive sets when a silent connection is probed, how often, and after how many probes it
	// counts as broken. The zero value means after 15 s, every 15 s, 9 times. A negative Idle
	// disables keepalive. Enable is ignored. Idle and Interval are at most 32,767 s, and Count 127.
	KeepAlive net.KeepAliveConfig

	// UserTimeout (TCP_USER_TIMEOUT) breaks a connection when sent data has not been acknowledged
	// for this long, or when output is pending and a live peer has kept its window closed for this
	// long, because it reads nothing. To find only peers that have vanished, use KeepAlive; to
	// close those that do not read, an OnIdle hook with WriteStalled. 0 means the system's default,
	// on Linux about 15 minutes.
	UserTimeout time.Duration

	// Backlog is how many connections may wait to be accepted. The system limits it (on Linux to
	// net.core.somaxconn). 0 means that limit.
	Backlog int

	// SendBuffer and ReceiveBuffer are the sizes of the kernel's buffers of each connection, in
	// bytes (SO_SNDBUF, SO_RCVBUF); Linux doubles them for its own overhead. With a small
	// SendBuffer, a peer that gets little output at a time and does not read is found sooner,
	// because pending output is only what the system does not take. 0 means that the system adapts
	// them to the connection, which is usually better; but a 4,096th of the memory that a cgroup or
	// GOMEMLIMIT allows, if that is less than 1 GiB.
	SendBuffer, ReceiveBuffer int

	// Control is called with the listening socket before it is bound, like that of
	// net.ListenConfig: for other options, such as IP_TOS, SO_MARK, SO_BINDTODEVICE and
	// SO_REUSEPORT. It runs after these options are set, and also for unix sockets. After package
	// handover it is called with the inherited socket, which is bound already. nil means none. A
	// nonzero SO_LINGER is reset: it would make each close block the loop.
	Control func(network, address string, c syscall.RawConn) error
}

// The system's limits: a number of more than 32 bits would be truncated, and package net ignores
// that Linux refuses a longer keep-alive.
const (
	mostUserTimeout = math.MaxInt32 * time.Millisecond
	mostKeepAlive   = math.MaxInt16 * time.Second
	mostProbes      = 127
)

// check refuses numbers that are negative or exceed the system's limits.
func (o TCPOptions) check(name string) error {
	return cmp.Or(
		atMost(name+"KeepAlive.Idle", o.KeepAlive.Idle, mostKeepAlive),
		atMost(name+"KeepAlive.Interval", o.KeepAlive.Interval, mostKeepAlive),
		defaults.Unit(name+"KeepAlive.Idle", o.KeepAlive.Idle),
		defaults.Unit(name+"KeepAlive.Interval", o.KeepAlive.Interval),
		atMost(name+"KeepAlive.Count", o.KeepAlive.Count, mostProbes),
		atMost(name+"UserTimeout", o.UserTimeout, mostUserTimeout),
		atMost(name+"Backlog", o.Backlog, math.MaxInt32),
		atMost(name+"SendBuffer", o.SendBuffer, math.MaxInt32),
		atMost(name+"ReceiveBuffer", o.ReceiveBuffer, math.MaxInt32),
		defaults.Set(name+"UserTimeout", &o.UserTimeout, 0, 0),
		defaults.Set(name+"Backlog", &o.Backlog, 0, 0),
		defaults.Set(name+"SendBuffer", &o.SendBuffer, 0, 0),
		defaults.Set(name+"ReceiveBuffer", &o.ReceiveBuffer, 0, 0),
	)
}

func atMost[T int | time.Duration](name string, n, most T) error {
	if n > most {
		return fmt.Errorf("%s is %v: the system takes at most %v", name, n, most)
	}
	return nil
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
	return sockets.Options{SendBuffer: o.SendBuffer, ReceiveBuffer: o.ReceiveBuffer, UserTimeout: o.UserTimeout, KeepAlive: o.KeepAlive}
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
		return fmt.Errorf("TCP: for the listener of the previous process: %w", err)
	}
	return nil
}

// setMoved sets the options of a connection that another process has accepted. What is not set
// stays: it may be the program's own.
func (o TCPOptions) setMoved(c *net.TCPConn) {
	if raw, err := c.SyscallConn(); err == nil {
		_ = o.ofSocket().Set("tcp", raw) // the system took the same for the listener
	}
	if !sockets.InheritsKeepAlive {
		o.setKeepAlive(c)
	}
}

// setKeepAlive sets KeepAlive for a connection that does not inherit it from the listener, or for
// which package net has set it in its own way.
func (o TCPOptions) setKeepAlive(c *net.TCPConn) {
	alive := o.KeepAlive
	if alive.Enable = alive.Idle >= 0; alive.Enable {
		_ = c.SetKeepAliveConfig(alive)
	} else {
		_ = c.SetKeepAlive(false) // that of an inherited listener
	}
}
