package loop

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"

	"github.com/loopwheel/loopwheel/internal/inside"
	"github.com/loopwheel/loopwheel/loop/internal/limits"
	"github.com/loopwheel/loopwheel/loop/internal/proxy"
	"github.com/loopwheel/loopwheel/loop/internal/tlsconn"
)

// This file is the header of the PROXY protocol: that of a balancer, which is awaited, and that of
// another client, which is not trusted.

var errUntrustedHeader = errors.New("loop: a PROXY header from an address that is not in ProxyProtocol")

// mustSendHeader reports whether a peer has to send a PROXY header. A peer without an IP address,
// as that of a unix socket, belongs to this machine and is trusted.
func (ln *listener) mustSendHeader(remote net.Addr) bool {
	ip, ok := limits.IP(remote)
	return len(ln.proxies) > 0 &&
		(!ok || slices.ContainsFunc(ln.proxies, func(p netip.Prefix) bool { return p.Contains(ip) }))
}

// receivedHeader collects the header, and goes on with the arrival when it is whole.
func (c *Conn) receivedHeader(p []byte) {
	a := c.loop.arrivals[c]
	if len(a.partHeader) > 0 {
		a.partHeader = append(a.partHeader, p...)
		p = a.partHeader
	}
	head, n, err := proxy.ParseHeader(p, proxy.MaxHeader)
	switch {
	case err != nil:
		a.abort(err)
	case n == 0:
		if len(a.partHeader) == 0 {
			a.partHeader = append(a.partHeader, p...)
		}
	case a.identify(head):
		if a.afterHeader(); len(p) > n {
			(*link)(c).Readable(p[n:])
		}
	}
}

// identify takes the client's addresses, and reports whether that client may come in.
func (a *arrival) identify(head proxy.Header) bool {
	if head.Remote != nil {
		a.remote, a.local = head.Remote, head.Local
	}
	for _, note := range head.TLVs {
		a.notes = append(a.notes, inside.TLV{Type: byte(note.Type), Value: note.Value})
	}
	err := a.acquireAddress()
	if err != nil {
		a.abort(err)
	}
	return err == nil
}

// headerEnded is the end of a peer that has not sent a whole header.
func (c *Conn) headerEnded(err error) {
	a := c.loop.arrivals[c]
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	if len(a.partHeader) == 0 {
		err = fmt.Errorf("%w: %w", tlsconn.ErrNoInput, err)
	}
	a.failed(fmt.Errorf("PROXY protocol: %w", err))
}

// receivedFirstBytes looks at the first bytes of a client that is not trusted to send a header.
// Bytes with which a header could begin are held until the next ones tell.
func (c *Conn) receivedFirstBytes(p []byte) {
	if !c.isOpen() {
		c.received(p) // which counts it
		return
	}
	held := c.heldFirstBytes()
	if len(held) > 0 {
		p = append(held, p...)
	}
	switch header, maybe := proxy.LooksLikeHeader(p); {
	case maybe:
		c.idle.lastRead = c.loop.now
		c.more().firstBytes = append(held[:0], p...)
	case header:
		c.warn(errUntrustedHeader, "connection closed")
		c.beginClose(errUntrustedHeader)
	default:
		c.receiveAsFirst(p)
	}
}

// receiveAsFirst passes on the first bytes, which are no header.
func (c *Conn) receiveAsFirst(p []byte) {
	if c.extras != nil {
		c.extras.firstBytes = nil
	}
	c.stage = plainInput
	c.received(p)
}

// heldFirstBytes returns what is held of the first bytes.
func (c *Conn) heldFirstBytes() []byte {
	if c.extras == nil {
		return nil
	}
	return c.extras.firstBytes
}
