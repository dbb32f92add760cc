package resp

import (
	"errors"
	"fmt"

	"github.com/loopwheel/loopwheel/codec"
)

// A ProtocolError says what a peer did that is not RESP. It is codec.ErrMalformed or
// codec.ErrTooLong to errors.Is. The requests' codec sends it to the peer, as redis-server does,
// before the connection closes.
type ProtocolError struct {
	Reason string // in redis-server's words: "invalid bulk length"

	kind error
}

// Error returns the reason after "Protocol error: ".
func (e *ProtocolError) Error() string { return "Protocol error: " + e.Reason }

// Unwrap returns codec.ErrMalformed or codec.ErrTooLong.
func (e *ProtocolError) Unwrap() error { return e.kind }

//go:noinline
func malformed(reason string) error {
	return &ProtocolError{Reason: reason, kind: codec.ErrMalformed}
}

//go:noinline
func tooLong(reason string) error {
	return &ProtocolError{Reason: reason, kind: codec.ErrTooLong}
}

// ErrHTTP is the reason of a connection whose peer speaks HTTP: an inline request whose command is
// POST or Host:. A page can have a browser send such a request, with commands in its body. The
// codec refuses it before anything after that line is decoded, and sends no answer, as redis-server
// does. It is codec.ErrMalformed to errors.Is.
var ErrHTTP = fmt.Errorf("%w: resp: an HTTP request in place of a command", codec.ErrMalformed)

// ErrNoConn is what a Server or Client returns that is used as the codec of a connection: only what
// its New returns is one.
var ErrNoConn = errors.New("resp: a Server or Client is a configuration; " +
	"the codec of a connection is what its New returns")
