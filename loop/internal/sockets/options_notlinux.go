//go:build !linux

package sockets

import (
	"errors"
	"net"
	"syscall"
	"time"
)

// InheritsKeepAlive says that each connection is to be given its keepalive.
const InheritsKeepAlive = false

// HasKeepAlive says that listeners do not have it.
func HasKeepAlive(net.Listener) bool { return false }

func setKeepAlive(int, net.KeepAliveConfig) error { return nil }

func setUserTimeout(int, time.Duration) error { return errors.ErrUnsupported }

func reset(int) {}

func dropErrorQueue(int) {}

// BindNoPort has nothing to do: only Linux needs it.
func BindNoPort(syscall.RawConn) {}

// PeerEnded is not known here: systems other than Linux tell it only to a reader.
func PeerEnded(int) bool { return false }
