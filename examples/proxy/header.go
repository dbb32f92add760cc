package main

import (
	"encoding/binary"
	"net"
	"net/netip"
)

// signature begins each header of the PROXY protocol, version 2
// (https://www.haproxy.org/download/2.9/doc/proxy-protocol.txt).
const signature = "\r\n\r\n\x00\r\nQUIT\n"

const (
	local, proxied = 0x20, 0x21 // version 2, and whether the connection is the proxy's own
	tcp4, tcp6     = 0x11, 0x21
)

// proxyHeader tells a backend from where a client came, and to where.
func proxyHeader(from, to net.Addr) []byte {
	src, dst := addrPort(from), addrPort(to)
	if !src.IsValid() || !dst.IsValid() { // a unix socket
		return append([]byte(signature), local, 0, 0, 0)
	}
	h := append([]byte(signature), proxied)
	if src.Addr().Is4() && dst.Addr().Is4() {
		h = append(h, tcp4, 0, 12)
		h = append(append(h, src.Addr().AsSlice()...), dst.Addr().AsSlice()...)
	} else {
		a, b := src.Addr().As16(), dst.Addr().As16()
		h = append(h, tcp6, 0, 36)
		h = append(append(h, a[:]...), b[:]...)
	}
	h = binary.BigEndian.AppendUint16(h, src.Port())
	return binary.BigEndian.AppendUint16(h, dst.Port())
}

func addrPort(a net.Addr) netip.AddrPort {
	t, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.AddrPort{}
	}
	ap := t.AddrPort()
	return netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port())
}
