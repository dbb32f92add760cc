package engine

import (
	"net/netip"
	"syscall"
)

// Control is called with a socket before it is bound, or connects, as that of net.ListenConfig and
// net.Dialer is. nil: there is nothing to do.
type Control = func(network, address string, c syscall.RawConn) error

// A Datagram is one that came in.
type Datagram struct {
	Data []byte
	Peer netip.AddrPort // zero if the socket speaks with one only

	// Local is the address to answer from: the one that the datagram was sent to, or for a
	// broadcast an address of the link that it came by. It is zero where the socket is bound to one
	// address, and where the system does not tell; then the system chooses.
	Local netip.Addr
}

// A PacketSink takes what happens to a UDP socket. Its methods are called on the loop.
type PacketSink interface {
	// Received hands over datagrams, in order. True: all are dealt with, and they are not valid any
	// more. False: the sink keeps the batch until it calls Packets.Resume, and is given no other.
	Received(batch []Datagram) (done bool)

	// Failed says that the socket has an error, such as the refusal of a peer that is connected to.
	// It goes on.
	Failed(err error)
}

// Packets is a loop's UDP socket. Its methods are called on the loop, none after Close.
type Packets interface {
	// Send sends one datagram from a Datagram's Local to its Peer: at once, or with Flush at the
	// latest. p is not kept. Both addresses are ignored if the socket speaks with one peer only. An
	// error concerns this datagram or an earlier one.
	Send(p []byte, peer netip.AddrPort, local netip.Addr) error

	// Resume takes back a batch for which Received has returned false, and goes on receiving, soon.
	Resume()

	// HasInput reports whether datagrams wait to be received, those that the sink keeps aside.
	HasInput() bool

	// Flush sends the queued datagrams, and returns how many datagrams the system did not take.
	Flush() (lost int)

	// Close closes the socket, after a Flush. No method of the sink is called any more.
	Close()
}

// A Holder is a Packets that can stop receiving.
type Holder interface {
	// Hold stops receiving, after it has handed over what was received, or goes on. Sending works.
	// The sink must be done with each batch when Received returns, except for one that it keeps.
	Hold(on bool)
}
