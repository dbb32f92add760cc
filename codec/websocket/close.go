package websocket

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"unicode/utf8"

	"github.com/gobwas/ws"

	"github.com/loopwheel/loopwheel/codec"
)

// A StatusCode says why a WebSocket was closed (RFC 6455 section 7.4). 3000 to 3999 are registered
// for libraries, 4000 to 4999 are for private use.
type StatusCode = ws.StatusCode

// The codes that are used by this package or are useful to others.
const (
	StatusNormal        StatusCode = 1000
	StatusGoingAway     StatusCode = 1001
	StatusProtocolError StatusCode = 1002
	StatusUnsupported   StatusCode = 1003
	StatusNone          StatusCode = 1005 // the peer gave no code; it cannot be sent
	StatusInvalidData   StatusCode = 1007
	StatusPolicy        StatusCode = 1008
	StatusTooBig        StatusCode = 1009
	StatusInternalError StatusCode = 1011
	StatusRestart       StatusCode = 1012
	StatusTryAgainLater StatusCode = 1013
)

// An alias is an error that errors.Is also takes for another one.
type alias struct {
	text string
	is   error
}

func (a *alias) Error() string        { return a.text }
func (a *alias) Is(target error) bool { return target == a.is }

// maxReason is the length of the longest reason, which shares 125 bytes with the code.
const maxReason = ws.MaxControlFramePayloadSize - 2

var (
	// ErrHTTP is the error of OnClose when Codec.HTTP takes the connection's request.
	// It is also codec.ErrEnd to errors.Is.
	ErrHTTP error = &alias{"websocket: a plain HTTP request", codec.ErrEnd}

	// ErrTimeout closes a connection whose handshake was not done in time: see
	// Codec.HandshakeTimeout and Client.HandshakeTimeout.
	ErrTimeout = errors.New("websocket: no handshake in time")

	// ErrNotOpen: the connection is not an open WebSocket: the handshake is not done, a close frame
	// was sent already, or it has another codec. It is also codec.ErrClosed to errors.Is.
	ErrNotOpen error = &alias{"websocket: not open", codec.ErrClosed}

	// ErrInvalidUTF8: a text message is not UTF-8. A peer that got it would have to close the
	// connection.
	ErrInvalidUTF8 = errors.New("websocket: text that is not UTF-8")
)

// A CloseError is the error of a connection that either side closed by a close frame. Passed to
// Conn.CloseWithError, or returned by OnMessage, its Code and Reason are sent to the peer.
type CloseError struct {
	Code   StatusCode
	Reason string

	// ByPeer: the peer sent the close frame. The error is then also io.EOF to errors.Is.
	ByPeer bool

	// Err is the peer's violation, if that is why we closed; it wraps codec.ErrTooLong or
	// codec.ErrMalformed.
	Err error
}

// Error names the side that closed, the code, the reason and the violation.
func (e *CloseError) Error() string {
	who := "closed"
	if e.ByPeer {
		who = "closed by the peer"
	}
	s := fmt.Sprintf("websocket: %s: %d", who, e.Code)
	if e.Reason != "" {
		s += fmt.Sprintf(" %q", e.Reason)
	}
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Unwrap returns Err.
func (e *CloseError) Unwrap() error { return e.Err }

// Is reports true for io.EOF if the peer closed, and for codec.ErrEnd if there was no violation.
func (e *CloseError) Is(target error) bool {
	return e.ByPeer && target == io.EOF || e.Err == nil && target == codec.ErrEnd
}

// A HandshakeError is the error of a connection that did not become a WebSocket. Codec.Upgrade
// returns it to choose the response. For a Client it is the server's response: such a refusal is
// also codec.ErrEnd to errors.Is.
type HandshakeError struct {
	Status int // of the HTTP response, 0 if a server's answer is not HTTP
	Reason string

	// Header and Body are a server's response to a Client: the Header with Location and
	// WWW-Authenticate, and as much of the Body as came with it, at most 1 KiB.
	Header http.Header
	Body   []byte

	// Err is the fault of a server's invalid answer; it wraps codec.ErrTooLong or
	// codec.ErrMalformed.
	Err error
}

// Error describes the response, or the fault in it.
func (e *HandshakeError) Error() string {
	if e.Err != nil {
		return "websocket: handshake failed: " + e.Err.Error()
	}
	return fmt.Sprintf("websocket: handshake refused: %d %s", e.Status, e.Reason)
}

// Unwrap returns Err.
func (e *HandshakeError) Unwrap() error { return e.Err }

// Is reports true for codec.ErrEnd if a server refused a Client.
func (e *HandshakeError) Is(target error) bool {
	return e.Err == nil && e.Header != nil && target == codec.ErrEnd
}

// violation returns the reason for closing a connection whose peer broke the protocol.
//
//go:noinline
func violation(code StatusCode, format string, args ...any) error {
	return &CloseError{Code: code, Err: fmt.Errorf("%w: %w", codec.ErrMalformed, fmt.Errorf(format, args...))}
}

// tooBig is violation for what is too long to be received.
//
//go:noinline
func tooBig[N int | uint64](what string, n N, max int) error {
	return &CloseError{Code: StatusTooBig, Err: tooLong(what, n, max)}
}

func tooLong[N int | uint64](what string, n N, max int) error {
	return fmt.Errorf("%w: a %s of %d bytes, limit %d", codec.ErrTooLong, what, n, max)
}

// An unsentError is the error of what is too long to be sent. It is no CloseError: StatusTooBig
// would tell the peer that its own message was too long.
type unsentError struct{ err error }

func (e *unsentError) Error() string { return "websocket: not sent: " + e.err.Error() }
func (e *unsentError) Unwrap() error { return e.err }

//go:noinline
func unsent(what string, n, max int) error { return &unsentError{tooLong(what, n, max)} }

// isUnsent reports whether err, which is not a CloseError, is that of a message of ours.
func isUnsent(err error) bool {
	_, ok := errors.AsType[*unsentError](err)
	return ok || errors.Is(err, ErrInvalidUTF8)
}

// status returns the code and reason for closing with err.
func (c *Codec) status(err error) (code StatusCode, reason string) {
	if e, ok := errors.AsType[*CloseError](err); ok {
		code, reason = e.Code, e.Reason
	} else if c.Status != nil {
		code, reason = c.Status(err)
	} else if err == nil {
		code = StatusNormal
	} else if isUnsent(err) {
		code = StatusInternalError
	} else {
		code = StatusGoingAway
	}
	if checkCode(code) != nil {
		return StatusInternalError, ""
	}
	return code, cutReason(reason)
}

// cutReason cuts s to what fits into a close frame, between two characters.
func cutReason(s string) string {
	if !utf8.ValidString(s) {
		return ""
	}
	for len(s) > maxReason {
		_, n := utf8.DecodeLastRuneInString(s)
		s = s[:len(s)-n]
	}
	return s
}

// checkCode returns nil for a code that may be in a close frame (RFC 6455 section 7.4.2). 1012 to
// 1014 were registered after the RFC.
func checkCode(code StatusCode) error {
	switch {
	case code >= 1012 && code <= 1014:
		return nil
	case code > 4999:
		return ws.ErrProtocolStatusCodeUnknown
	}
	return ws.CheckCloseFrameData(code, "")
}

// parseClose returns what a close frame of the peer says (RFC 6455 section 5.5.1).
func parseClose(payload []byte) (code StatusCode, reason string, err error) {
	if len(payload) == 0 {
		return StatusNone, "", nil
	}
	if len(payload) == 1 {
		return 0, "", violation(StatusProtocolError, "a close frame with half a code")
	}
	code, reason = ws.ParseCloseFrameData(payload)
	if err := checkCode(code); err != nil {
		return 0, "", violation(StatusProtocolError, "a close frame with code %d: %w", code, err)
	}
	if !utf8.ValidString(reason) {
		return 0, "", violation(StatusInvalidData, "a close frame: %w", ErrInvalidUTF8)
	}
	return code, reason, nil
}
