//go:build !linux

package redisgroup

import (
	"net"
	"time"
)

func madeDirect(conn net.Conn) net.Conn { return conn }

// A nap is a timer. Go's own are good enough here.
type nap struct{}

func newNap() *nap { return &nap{} }

func (*nap) sleep(d time.Duration) { time.Sleep(d) }
func (*nap) close()                {}
