// Package listening has servers of package net for tests that connect to one.
package listening

import (
	"net"
	"testing"
)

// TCP listens at a port of this machine until the test ends, and has each connection served on a
// goroutine of its own; it is closed when serve returns.
func TCP(t testing.TB, serve func(c net.Conn)) net.Listener {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	On(t, ln, serve)
	return ln
}

// On is TCP for a listener that is there, which it closes when the test ends.
func On(t testing.TB, ln net.Listener, serve func(c net.Conn)) {
	t.Cleanup(func() { _ = ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				serve(c)
			}()
		}
	}()
}
