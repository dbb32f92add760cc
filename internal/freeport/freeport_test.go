package freeport

import (
	"net"
	"os"
	"testing"
)

// A port is held against other processes until the test is over, and no longer; a server may take
// it, and come back.
func TestPortIsHeld(t *testing.T) {
	var port int
	t.Run("a test", func(t *testing.T) {
		port = Port(t)
		for range 2 {
			if !free(port) || !free(port+bus) {
				t.Errorf("%d is not free", port)
			}
		}
		if pc, err := net.ListenPacket("udp", addr(port)); err == nil {
			_ = pc.Close()
			t.Errorf("%d is not held", port)
		}
	})
	pc, err := net.ListenPacket("udp", addr(port))
	if err != nil {
		t.Fatalf("%d is still held: %v", port, err)
	}
	_ = pc.Close()
}

// What another process holds, or listens at, is passed over.
func TestPortsOfOthers(t *testing.T) {
	next := func(i uint32) int { return first + (os.Getpid()*apart+int(taken.Load()+i))%(last-first) }
	held := next(1)
	pc, err := net.ListenPacket("udp", addr(held))
	if err != nil {
		t.Skip("others are quicker: ", err)
	}
	defer pc.Close()
	busy := next(2)
	ln, err := net.Listen("tcp", addr(busy))
	if err != nil {
		t.Skip("others are quicker: ", err)
	}
	defer ln.Close()
	if port := Port(t); port == held || port == busy {
		t.Errorf("%d is not free", port)
	}
}
