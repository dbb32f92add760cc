package sockets

import (
	"errors"
	"net"
	"os"
	"time"

	"github.com/loopwheel/loopwheel/loop/internal/engine"
)

// A udpReader implements engine.Packets for an engine that has no poller of its own for UDP: a
// goroutine waits for the socket, reads it, and hands the datagrams to the loop. Its methods are
// for the loop, except for read.
type udpReader struct {
	*UDP
	loop   *engine.Queue
	sink   engine.PacketSink
	free   chan *Batch // for the reader; all batches have room in either
	full   chan *Batch // for the loop
	take   func()
	kept   *Batch // which the sink still uses
	behind int    // calls of received meanwhile
	closed bool
	asleep chan struct{} // the reader has stopped, by Hold
	goOn   chan struct{} // it is to go on
}

// ServeUDP makes the loop of a queue, on which it is called, receive from a socket that Bind or
// net.Dialer has made.
func ServeUDP(l *engine.Queue, nc net.Conn, sink engine.PacketSink) engine.Packets {
	return newUDPReader(l, nc, sink)
}

func newUDPReader(l *engine.Queue, nc net.Conn, sink engine.PacketSink) *udpReader {
	sock, batches, size := UDPOf(nc), batches, batchSize
	if sock.connected { // there may be many of these
		batches, size = 2, 1
	}
	s := &udpReader{UDP: sock, loop: l, sink: sink, free: make(chan *Batch, batches), full: make(chan *Batch, batches)}
	s.take, s.asleep, s.goOn = s.received, make(chan struct{}), make(chan struct{})
	for range batches {
		s.free <- newBatch(size)
	}
	go s.read()
	return s
}

// read passes on datagrams until the socket is closed. If the loop does not take them, the kernel's
// buffer fills.
func (s *udpReader) read() {
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
		if errors.Is(b.Err, os.ErrDeadlineExceeded) {
			s.free <- b
			select {
			case s.asleep <- struct{}{}:
			case <-s.loop.Ended():
				return
			}
			select {
			case <-s.goOn:
			case <-s.loop.Ended():
				return
			}
			continue
		}
		s.full <- b
		s.loop.Execute(s.take)
	}
}

// received runs on the loop, for each batch.
func (s *udpReader) received() {
	if s.kept != nil && !s.closed {
		s.behind++
		return
	}
	select {
	case b := <-s.full:
		s.handOver(b)
	default: // Hold was faster
	}
}

func (s *udpReader) handOver(b *Batch) {
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
func (s *udpReader) Resume() {
	s.free <- s.kept
	for s.kept = nil; s.behind > 0; s.behind-- {
		s.loop.Execute(s.take)
	}
}

// Hold implements engine.Holder.
func (s *udpReader) Hold(on bool) {
	if !on {
		_ = s.SetReadDeadline(time.Time{})
		s.goOn <- struct{}{}
		return
	}
	_ = s.SetReadDeadline(time.Unix(1, 0))
	for {
		select {
		case b := <-s.full:
			s.handOver(b)
		case <-s.asleep:
			for len(s.full) > 0 { // both were ready
				s.handOver(<-s.full)
			}
			return
		}
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

// HasInput implements engine.Packets. The reader reads ahead, so what has come waits for the loop,
// unless the reader had no time yet, as when the process was stopped.
func (s *udpReader) HasInput() bool {
	// The last look is for what was on its way from one place to the other.
	return len(s.full) > 0 || s.Readable() || len(s.full) > 0
}

// Close implements engine.Packets.
func (s *udpReader) Close() {
	if s.closed {
		return
	}
	s.Flush()
	s.closed = true
	_ = s.UDP.Close()
}
