// Package proxy speaks with proxies: it reads the header of one in front of a server, and makes one
// connect a client.
//
// By that header, of the PROXY protocol, a balancer names the client that it speaks for.
// github.com/pires/go-proxyproto reads addresses and notes. This package finds where the header
// ends, and takes two kinds of headers that the library refuses: long ones, and those of a balancer
// that does not know the addresses.
package proxy

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net"

	"github.com/pires/go-proxyproto"
)

const (
	// MaxHeader is the length of the longest header that the protocol allows.
	MaxHeader = fixedV2 + 0xffff

	maxV1     = 107 // the longest line of version 1
	lineBreak = "\r\n"

	// A header of version 2 begins with the signature, a command, a family and a length.
	commandAt, familyAt, lengthAt, fixedV2 = 12, 13, 14, 16
)

var (
	errNone     = errors.New("no header, though the network is trusted to send one")
	errTooLong  = errors.New("the header does not end")
	errDatagram = errors.New("the header is one for datagrams")
)

// A Header is what a balancer says about a connection.
type Header struct {
	// Remote and Local are the client's address and the one that it connected to. They are nil if
	// the balancer speaks for itself (a health check: LOCAL) or does not know the addresses
	// (UNKNOWN, UNSPEC): then the connection's own addresses are right.
	Remote, Local net.Addr

	// TLVs are the notes of a header of version 2, in their order. Their values are copies.
	TLVs []proxyproto.TLV
}

// ParseHeader reads the header that b begins with, and returns its length: 0 if b is only the
// beginning of one. A header of version 2 may have max bytes. It keeps nothing of b.
func ParseHeader(b []byte, max int) (h Header, n int, err error) {
	switch {
	case begins(b, proxyproto.SIGV1):
		if n, err = sizeV1(b); n > 0 {
			h, err = parse(b[:n])
		}
	case begins(b, proxyproto.SIGV2):
		if n, err = sizeV2(b, max); n > 0 {
			h, err = parseV2(b[:n])
		}
	default:
		err = errNone
	}
	if err != nil {
		return Header{}, 0, fmt.Errorf("PROXY protocol: %w", err)
	}
	return h, n, nil
}

// sizeV1 returns the length of the header that b begins with, or 0 if it does not say yet.
func sizeV1(b []byte) (int, error) {
	line, _, ends := bytes.Cut(b[:min(len(b), maxV1)], []byte(lineBreak))
	switch {
	case ends:
		return len(line) + len(lineBreak), nil
	case len(b) >= maxV1:
		return 0, errTooLong
	}
	return 0, nil
}

func sizeV2(b []byte, max int) (int, error) {
	if len(b) < fixedV2 {
		return 0, nil
	}
	n := fixedV2 + int(binary.BigEndian.Uint16(b[lengthAt:]))
	switch {
	case n > max:
		return 0, fmt.Errorf("a header of %d bytes; at most %d", n, max)
	case n > len(b):
		return 0, nil
	}
	return n, nil
}

// parseV2 reads a whole header of version 2: its notes, and what comes before them.
func parseV2(b []byte) (h Header, err error) {
	isLocal := b[commandAt] == byte(proxyproto.LOCAL)
	isUnspec := b[commandAt] == byte(proxyproto.PROXY) && b[familyAt] == byte(proxyproto.UNSPEC)
	end, known := fixedV2, true
	switch b[familyAt] >> 4 {
	case 0:
	case 1:
		end += 2*4 + 2*2
	case 2:
		end += 2*16 + 2*2
	case 3:
		end += 2 * 108
	default:
		known = false
	}
	if known = known && len(b) >= end; known {
		h.TLVs, err = proxyproto.SplitTLVs(b[end:])
	}
	switch {
	case isLocal: // the receiver skips what it does not understand
		return h, nil
	case isUnspec || err != nil:
		return h, err
	case known:
		b = bytes.Clone(b[:end])
		binary.BigEndian.PutUint16(b[lengthAt:], uint16(end-fixedV2))
	}
	addrs, err := parse(b)
	addrs.TLVs = h.TLVs
	return addrs, err
}

// parse reads a whole header without notes by the library.
func parse(b []byte) (Header, error) {
	head, err := proxyproto.Read(bufio.NewReader(bytes.NewReader(b)))
	switch {
	case err != nil || head.Command == proxyproto.LOCAL:
		return Header{}, err
	case !head.TransportProtocol.IsStream():
		return Header{}, errDatagram
	}
	return Header{Remote: head.SourceAddr, Local: head.DestinationAddr}, nil
}

// begins reports whether b and signature agree, as far as b goes.
func begins(b, signature []byte) bool {
	n := min(len(b), len(signature))
	return bytes.Equal(b[:n], signature[:n])
}

// v1Start is what headers of version 1 begin with. Without the blank it could be a word of data.
var v1Start = []byte("PROXY ")

// LooksLikeHeader reports whether b, the first bytes of a connection, begin with a header's
// signature, which a client that is not trusted must not send.
func LooksLikeHeader(b []byte) bool {
	return bytes.HasPrefix(b, v1Start) || bytes.HasPrefix(b, proxyproto.SIGV2)
}
