// Package proxyhead reads the header with which a balancer says whom it speaks for: the PROXY
// protocol, versions 1 and 2, from bytes as they come. What is in a header is read by
// github.com/pires/go-proxyproto; here is where it ends.
package proxyhead

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"net"

	"github.com/pires/go-proxyproto"
)

const (
	// MaxSize is how long a header may be. Version 1 ends after 107 bytes; version 2 announces its
	// length, and real ones, with the balancer's notes (TLV), have some hundred bytes.
	MaxSize = 4096

	maxV1     = 107
	fixedV2   = 16 // signature, version, family, length
	lineBreak = "\r\n"
)

var (
	// ErrNone says that the bytes do not begin with a header.
	ErrNone = errors.New("PROXY protocol: no header, though the network is trusted to send one")

	errTooLong = errors.New("PROXY protocol: the header does not end")
)

// A Header is what a balancer says about a connection.
type Header struct {
	// Remote and Local are the client's address and the one that it connected to. They are nil if
	// the balancer speaks for itself (a health check: LOCAL) or does not know (UNKNOWN): then the
	// connection's own addresses are right.
	Remote, Local net.Addr
}

// Parse reads the header that b begins with, and returns its length: 0 if b is only the beginning
// of one. It keeps nothing of b.
func Parse(b []byte) (h Header, n int, err error) {
	n, err = size(b)
	if n == 0 || err != nil {
		return Header{}, 0, err
	}
	head, err := proxyproto.Read(bufio.NewReader(bytes.NewReader(b[:n])))
	if err != nil {
		return Header{}, 0, fmt.Errorf("PROXY protocol: %w", err)
	}
	if head.Command == proxyproto.LOCAL {
		return Header{}, n, nil
	}
	if !head.TransportProtocol.IsStream() {
		return Header{}, 0, errors.New("PROXY protocol: the header is one for datagrams")
	}
	return Header{Remote: head.SourceAddr, Local: head.DestinationAddr}, n, nil
}

// size returns the length of the header that b begins with, or 0 if it does not say yet.
func size(b []byte) (int, error) {
	switch {
	case begins(b, proxyproto.SIGV1):
		return sizeV1(b)
	case !begins(b, proxyproto.SIGV2):
		return 0, ErrNone
	case len(b) < fixedV2:
		return 0, nil
	}
	n := fixedV2 + int(b[14])<<8 + int(b[15])
	if n > MaxSize {
		return 0, fmt.Errorf("PROXY protocol: a header of %d bytes; at most %d", n, MaxSize)
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

// Looks reports whether b, the first bytes of a connection, are a header's: what a client that is
// not trusted must not send.
func Looks(b []byte) bool {
	return bytes.HasPrefix(b, []byte("PROXY ")) || bytes.HasPrefix(b, proxyproto.SIGV2)
}
