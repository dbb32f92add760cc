// Package netpackets has UDP sockets: how they are bound for several loops, how datagrams are sent
// and received in batches, and from which address an answer leaves.
//
// A Socket does that for an engine that has a poller of its own. Packets is for all other engines:
// a goroutine waits for the socket, reads it, and hands what has come to the loop.
package netpackets

import (
	"errors"
	"net"

	"github.com/loopwheel/loopwheel/loop/internal/engine"
)

// Packets implements engine.Packets. Its methods are for the loop, except for read.
type Packets struct {
	*Socket
	loop   engine.Executor
	sink   engine.PacketSink
	free   chan *Batch // for the reader; all batches have room in either
	full   chan *Batch // for the loop
	take   func()
	kept   *Batch // which the sink has not done with
	behind int    // calls of received that have found that
	closed bool
}

// Serve has a loop receive, on which it is called.
func Serve(l engine.Executor, nc net.Conn, sink engine.PacketSink) *Packets {
	sock, batches, size := SocketOf(nc), batches, batchSize
	if sock.connected { // there may be many of these
		batches, size = 2, 1
	}
	s := &Packets{Socket: sock, loop: l, sink: sink, free: make(chan *Batch, batches), full: make(chan *Batch, batches)}
	s.take = s.received
	for range batches {
		s.free <- newBatch(size)
	}
	go s.read()
	return s
}

// read hands on what comes in until the socket is closed. A loop that does not take it has the
// kernel's buffer fill.
func (s *Packets) read() {
	for {
		var b *Batch
		select {
		case b = <-s.free:
		case <-s.loop.Ended():
			return
		}
		if s.Receive(b); errors.Is(b.Err, net.ErrClosed) {
			return
		}
		s.full <- b
		s.loop.Execute(s.take)
	}
}

// received runs on the loop, for each batch.
func (s *Packets) received() {
	if s.kept != nil && !s.closed {
		s.behind++
		return
	}
	b := <-s.full
	switch {
	case s.closed:
	case b.Err != nil:
		s.sink.Failed(b.Err)
	case len(b.All) > 0:
		if !s.sink.Received(b.All) && !s.closed {
			s.kept = b
			return
		}
	}
	s.free <- b
}

// Resume implements engine.Packets.
func (s *Packets) Resume() {
	s.free <- s.kept
	for s.kept = nil; s.behind > 0; s.behind-- {
		s.loop.Execute(s.take)
	}
}

// bare returns what the system said.
func bare(err error) error {
	var op *net.OpError
	if errors.As(err, &op) {
		return op.Err
	}
	return err
}

// Pending implements engine.Packets. The reader reads ahead, so what has come waits for the loop,
// unless the reader had no time yet, as when the process was stopped.
func (s *Packets) Pending() bool {
	// The last look is for what was on its way from one place to the other.
	return len(s.full) > 0 || s.Readable() || len(s.full) > 0
}

// Close implements engine.Packets.
func (s *Packets) Close() {
	if s.closed {
		return
	}
	s.Flush()
	s.closed = true
	_ = s.Socket.Close()
}
