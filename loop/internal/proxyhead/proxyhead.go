// Package proxyhead reads the header by which a balancer names the client that it speaks for: the
// PROXY protocol, versions 1 and 2, from bytes as they come. The addresses of a header are read by
// github.com/pires/go-proxyproto; this package finds where the header ends.
package proxyhead

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
	// MaxSize is the length of the longest header that the protocol allows.
	MaxSize = fixedV2 + 0xffff

	maxV1     = 107 // the longest line of version 1
	fixedV2   = 16  // signature, command, family, length
	lineBreak = "\r\n"

	// In a header of version 2, the byte of the command, and that of the family and protocol.
	commandAt, familyAt, lengthAt = 12, 13, 14
	commandLocal, commandProxy    = 0x20, 0x21
	familyUnspec                  = 0x00
)

var (
	// ErrNone says that the bytes do not begin with a header.
	ErrNone = errors.New("PROXY protocol: no header, though the network is trusted to send one")

	errTooLong = errors.New("PROXY protocol: the header does not end")
	errBadTLV  = errors.New("PROXY protocol: a TLV is longer than the header")
)

// A Header is what a balancer says about a connection.
type Header struct {
	// Remote and Local are the client's address and the one that it connected to. They are nil if
	// the balancer speaks for itself (a health check: LOCAL) or does not know the addresses
	// (UNKNOWN, UNSPEC): then the connection's own addresses are right.
	Remote, Local net.Addr

	// TLVs are the notes of a header of version 2, in their order. Their values are copies.
	TLVs []TLV
}

// A TLV is one note of a balancer: a type, as section 2.2 of the protocol numbers them, and a
// value.
type TLV struct {
	Type  byte
	Value []byte
}

// Parse reads the header that b begins with, and returns its length: 0 if b is only the beginning
// of one. A header of version 2 may have max bytes. Parse keeps nothing of b.
func Parse(b []byte, max int) (h Header, n int, err error) {
	n, err = size(b, max)
	if n == 0 || err != nil {
		return Header{}, 0, err
	}
	if bytes.HasPrefix(b, proxyproto.SIGV1) {
		h, err = parseAddrs(b[:n])
	} else {
		h, err = parseV2(b[:n])
	}
	if err != nil {
		return Header{}, 0, err
	}
	return h, n, nil
}

// parseV2 reads a whole header of version 2.
func parseV2(b []byte) (Header, error) {
	command, family := b[commandAt], b[familyAt]
	addresses, known := addressesSize(family)
	switch {
	case command == commandLocal:
		// The balancer speaks for itself. The receiver skips what else is there.
		if len(b) < fixedV2+addresses || !known {
			return Header{}, nil
		}
		tlvs, _ := splitTLVs(b[fixedV2+addresses:])
		return Header{TLVs: tlvs}, nil
	case command == commandProxy && family == familyUnspec:
		tlvs, err := splitTLVs(b[fixedV2:])
		return Header{TLVs: tlvs}, err
	case command == commandProxy && known && len(b) >= fixedV2+addresses:
		tlvs, err := splitTLVs(b[fixedV2+addresses:])
		if err != nil {
			return Header{}, err
		}
		// The library refuses long headers, so it gets the addresses alone.
		head := bytes.Clone(b[:fixedV2+addresses])
		binary.BigEndian.PutUint16(head[lengthAt:], uint16(addresses))
		h, err := parseAddrs(head)
		h.TLVs = tlvs
		return h, err
	}
	return parseAddrs(b) // has the right words for what is wrong
}

// addressesSize returns how many bytes of addresses a family has, and whether the family is known.
func addressesSize(family byte) (n int, known bool) {
	switch family >> 4 {
	case 0:
		return 0, true
	case 1:
		return 2*4 + 2*2, true
	case 2:
		return 2*16 + 2*2, true
	case 3:
		return 2 * 108, true
	}
	return 0, false
}

// splitTLVs reads the notes after the addresses.
func splitTLVs(b []byte) ([]TLV, error) {
	var tlvs []TLV
	for len(b) > 0 {
		if len(b) < 3 {
			return nil, errBadTLV
		}
		n := int(binary.BigEndian.Uint16(b[1:]))
		if len(b) < 3+n {
			return nil, errBadTLV
		}
		tlvs = append(tlvs, TLV{Type: b[0], Value: bytes.Clone(b[3 : 3+n])})
		b = b[3+n:]
	}
	return tlvs, nil
}

// parseAddrs has the library read the addresses of a whole header without TLVs.
func parseAddrs(b []byte) (Header, error) {
	head, err := proxyproto.Read(bufio.NewReader(bytes.NewReader(b)))
	if err != nil {
		return Header{}, fmt.Errorf("PROXY protocol: %w", err)
	}
	if head.Command == proxyproto.LOCAL {
		return Header{}, nil
	}
	if !head.TransportProtocol.IsStream() {
		return Header{}, errors.New("PROXY protocol: the header is one for datagrams")
	}
	return Header{Remote: head.SourceAddr, Local: head.DestinationAddr}, nil
}

// size returns the length of the header that b begins with, or 0 if it does not say yet.
func size(b []byte, max int) (int, error) {
	switch {
	case begins(b, proxyproto.SIGV1):
		return sizeV1(b)
	case !begins(b, proxyproto.SIGV2):
		return 0, ErrNone
	case len(b) < fixedV2:
		return 0, nil
	}
	n := fixedV2 + int(binary.BigEndian.Uint16(b[lengthAt:]))
	if n > max {
		return 0, fmt.Errorf("PROXY protocol: a header of %d bytes; at most %d", n, max)
	}
	if n > len(b) {
		return 0, nil
	}
	return n, nil
}

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

// begins reports whether b and signature agree, as far as b goes.
func begins(b, signature []byte) bool {
	n := min(len(b), len(signature))
	return bytes.Equal(b[:n], signature[:n])
}

// v1Start is what headers of version 1 begin with. Without the blank it could be a word of data.
var v1Start = []byte("PROXY ")

// Looks reports whether b, the first bytes of a connection, are a header's, which a client that is
// not trusted must not send. It cannot tell while b is only a part of a header's signature: then
// maybe is true.
func Looks(b []byte) (header, maybe bool) {
	for _, start := range [][]byte{v1Start, proxyproto.SIGV2} {
		if begins(b, start) {
			return len(b) >= len(start), len(b) < len(start)
		}
	}
	return false, false
}
