package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/loopwheel/loopwheel/bench/internal/child"
)

const (
	header       = 4        // bytes of a frame's length field
	largeFrame   = 16 << 10 // bytes of payload
	largeDepth   = 16       // frames under way on a connection
	largeRounds  = 4        // how often each connection sends as many
	settleLittle = 1 * time.Second
	settleLong   = 30 * time.Second
)

// compareTraffic prints what the servers keep of large traffic, once it is over.
func compareTraffic(conns, rounds int, only string) error {
	fmt.Printf("%-10s %10s %10s %10s %7s %7s   KiB resident, %d connections idle: before, after %v, after %v\n",
		"server", "before", "after", "later", "after", "later", conns, settleLittle, settleLong)
	for range rounds {
		for _, name := range names {
			if !chosen(name, only) {
				continue
			}
			if err := measureTraffic(name, conns); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	return nil
}

// measureTraffic measures one server before the traffic, a little after it, and much later.
func measureTraffic(name string, conns int) error {
	srv, err := child.Spawn("-serve", name)
	if err != nil {
		return err
	}
	defer srv.End()
	addr, err := srv.Line()
	if err != nil {
		return err
	}
	clients, err := connect(addr, conns)
	if err != nil {
		return err
	}
	defer clients.End()
	var seen []float64
	for _, settle := range []time.Duration{0, settleLittle, settleLong - settleLittle} {
		if len(seen) == 1 {
			if err := traffic(clients); err != nil {
				return err
			}
		}
		time.Sleep(settle)
		u, err := usageOf(srv)
		if err != nil {
			return err
		}
		seen = append(seen, float64(u.resident)/1024)
	}
	fmt.Printf("%-10s %10.0f %10.0f %10.0f %7.2f %7.2f\n", name, seen[0], seen[1], seen[2], seen[1]/seen[0], seen[2]/seen[0])
	return nil
}

// traffic has clients send, and waits until all answers have come.
func traffic(clients *child.Process) error {
	_, err := clients.Ask("traffic")
	return err
}

// echoMuch has all connections echo large frames at once.
func echoMuch(conns []net.Conn) error {
	frame := make([]byte, header+largeFrame)
	binary.BigEndian.PutUint32(frame, largeFrame)
	out := bytes.Repeat(frame, largeDepth)
	failed := make(chan error, len(conns))
	var all sync.WaitGroup
	for _, c := range conns {
		all.Go(func() {
			for range largeRounds {
				go func() { _, _ = c.Write(out) }()
				if _, err := io.CopyN(io.Discard, c, int64(len(out))); err != nil {
					failed <- err
					return
				}
			}
		})
	}
	all.Wait()
	select {
	case err := <-failed:
		return err
	default:
		return nil
	}
}
