package websocket

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/internal/defaults"
)

const (
	// DefaultMaxHandshake is Codec.MaxHandshake, in bytes, if that is zero.
	DefaultMaxHandshake = 16 << 10

	// DefaultHandshakeTimeout is Codec.HandshakeTimeout, if that is zero.
	DefaultHandshakeTimeout = 10 * time.Second

	// DefaultCompressMin is Codec.CompressMin, in bytes, if that is zero.
	DefaultCompressMin = 256
)

// A Codec is the configuration of WebSocket for a listener; a Client is that for dialed
// connections. It is a codec.Stateful. The zero Codec accepts connections on any path from pages of
// the same host, allows ten seconds for the handshake, 64 KiB for a message and 1,000 pings,
// pongs and empty fragments a second, and answers plain HTTP requests with "426 Upgrade Required".
//
// Use it by its address. The fields must not be changed once it serves. Its functions are called on
// the loop of the connection concerned, on several loops at once, and must not block, except
// Upgrade with UpgradeBlocks.
type Codec struct {
	// Path is the only path that may be upgraded; others are refused with 404. Empty means any.
	Path string

	// Origins are the origins, such as "https://example.com", whose pages may connect, besides
	// those of the host and port that the request is sent to, whatever their scheme. "*" allows
	// all. Others are refused with 403, since a browser sends its cookies with requests from any
	// page (RFC 6455 section 10.2). A request without an Origin is not from a browser and is
	// allowed. An origin has a scheme, a port unless it is the scheme's default, and neither a path
	// nor a pattern.
	Origins []string

	// Protocols are the supported subprotocols. The client's first choice among them is used, and
	// none if it offers none of them.
	Protocols []string

	// Upgrade, if not nil, is called last, for a handshake that is otherwise valid. r has the
	// client's address in RemoteAddr and its TLS state in TLS, and must not be changed. Fields that
	// Upgrade adds to answer, such as cookies, are sent with the response. A Sec-WebSocket-Protocol
	// there chooses the subprotocol, one that the client asks for, in place of Protocols; other
	// fields of the handshake are dropped. An error refuses the handshake: a *HandshakeError with
	// its Status and Reason, any other with 403 and a standard text. A panic closes the connection.
	Upgrade func(r *http.Request, answer http.Header) error

	// UpgradeBlocks runs Upgrade on a goroutine, as a job of loop.Offload, so that it may block, to
	// query a database. The connection is not read until Upgrade has returned, and
	// HandshakeTimeout applies, with a 408. The context of r is done when the connection closes;
	// Upgrade should return then. The answer is 503 if too many jobs are queued
	// (loop.ErrOffloadFull). Without a loop Upgrade is called at once.
	UpgradeBlocks bool

	// HTTP, if not nil, serves requests that do not ask for a WebSocket, or not at Path, as the
	// Handler of an http.Server: one port serves the page, its files and its socket. It runs on
	// goroutines of net/http and must not touch what belongs to a loop. The connection's
	// loop.Handler gets OnClose with ErrHTTP; a later WebSocket request on the same connection
	// starts over with Accept. The drain closes a connection once its request, if any, is answered.
	// Panics are logged and counted like those of callbacks. HTTP needs a loop.Server.
	HTTP http.Handler

	// HTTPServer, if not nil, serves HTTP, or its own Handler if HTTP is nil, or
	// http.DefaultServeMux if both are. A zero ReadHeaderTimeout or IdleTimeout means its
	// ReadTimeout or, if that is zero, too, HandshakeTimeout or DefaultHTTPIdleTimeout; a zero
	// MaxHeaderBytes means MaxHandshake. The Codec wraps its Handler, ConnState and ConnContext at
	// the first request. Calling its Shutdown is up to the caller, after which no request is
	// answered.
	HTTPServer *http.Server

	// Binary makes Conn.Send send binary messages instead of text.
	Binary bool

	// MaxHandshake bounds the head of an HTTP request, in bytes. 0 means DefaultMaxHandshake,
	// 16 KiB.
	MaxHandshake int

	// HandshakeTimeout bounds the handshake: then the connection closes with ErrTimeout, and with a
	// 408 if a request has begun and HTTP and HTTPServer are nil, or Upgrade is running. 0 means
	// DefaultHandshakeTimeout, 10 s.
	HandshakeTimeout time.Duration

	// MaxMessage is the length of the longest message that a peer may send, in bytes, decompressed.
	// 0 means codec.DefaultMax, 64 KiB. A longer one closes the connection with StatusTooBig.
	MaxMessage int

	// MaxSend is the length of the longest message that may be sent. A longer one is refused with
	// codec.ErrTooLong. 0 means MaxMessage.
	MaxSend int

	// MaxFrame is the length of the longest frame that a peer may send. 0 means MaxMessage.
	MaxFrame int

	// Compress accepts permessage-deflate (RFC 7692) from clients that offer it. Each message is
	// compressed separately, in both directions (no context takeover), so that a connection needs
	// no memory for it, and a broadcast is compressed once. A client that asks for a window below
	// 15 bits gets messages longer than eight windows uncompressed. To decompress a hostile message
	// takes the loop up to 0.14 µs per byte: up to 10 ms for one of 64 KiB, the default MaxMessage.
	// For untrusted clients leave Compress off, or lower MaxMessage.
	Compress bool

	// CompressMin is the length of the shortest message to compress. 0: DefaultCompressMin, 256.
	CompressMin int

	// Status, if not nil, chooses the code and reason of the close frame when our side closes with
	// an err that is not a *CloseError. The default is StatusNormal without an error,
	// StatusInternalError with that of a message that could not be sent (codec.ErrTooLong or
	// ErrInvalidUTF8), StatusGoingAway with any other, and no reason. A code that must not be sent
	// becomes StatusInternalError; a reason is cut to 123 bytes.
	Status func(err error) (code StatusCode, reason string)

	noConn
	once     sync.Once
	server   *http.Server        // of HTTP
	masked   byte                // what we send: maskBit if this is of a Client, or 0
	deflated [maxWindow + 1]byte // addresses, the FrameKeys of connections that compress, by window
}

// ErrNoConn is returned by the codec methods of a Codec or a Client: these are configurations, and
// New returns the codec of a connection.
var ErrNoConn = errors.New("websocket: a Codec is a configuration; the codec of a connection is what its New returns")

// New returns the codec of one connection. Any goroutine may call it.
func (c *Codec) New() codec.Codec { return &connCodec{config: c} }

// noConn is a codec of no connection.
type noConn struct{}

// Decode returns ErrNoConn.
func (noConn) Decode([]byte) (int, []byte, error) { return 0, nil, ErrNoConn }

// AppendFrame returns ErrNoConn.
func (noConn) AppendFrame(dst, _ []byte) ([]byte, error) { return dst, ErrNoConn }

// Validate implements codec.Validator.
func (c *Codec) Validate() error {
	if c.Path != "" && !strings.HasPrefix(c.Path, "/") {
		return wrong("Codec", "Path %q does not begin with a slash", c.Path)
	}
	for _, o := range c.Origins {
		if !isOrigin(o) {
			return wrong("Codec", "Origins %q is no origin: want \"https://host\", \"null\" or \"*\"", o)
		}
	}
	return c.check("Codec")
}

// wrong returns the error of a field of a Codec or a Client.
func wrong(of, format string, args ...any) error {
	return fmt.Errorf("%w: websocket.%s.%w", codec.ErrConfig, of, fmt.Errorf(format, args...))
}

// check validates the fields that a Client has as well.
func (c *Codec) check(of string) error {
	for _, f := range []struct {
		name  string
		value int
	}{
		{"MaxHandshake", c.MaxHandshake}, {"MaxMessage", c.MaxMessage},
		{"MaxSend", c.MaxSend}, {"MaxFrame", c.MaxFrame}, {"CompressMin", c.CompressMin},
	} {
		if f.value < 0 {
			return wrong(of, "%s %d is negative", f.name, f.value)
		}
	}
	if c.HandshakeTimeout < 0 {
		return wrong(of, "HandshakeTimeout %v is negative", c.HandshakeTimeout)
	}
	if err := defaults.Unit("HandshakeTimeout", c.HandshakeTimeout); err != nil {
		return wrong(of, "%w", err)
	}
	for _, p := range c.Protocols {
		if !isToken(p) {
			return wrong(of, "Protocols %q is no token, as RFC 6455 wants it", p)
		}
	}
	return nil
}

// isOrigin reports whether a browser could send s as its Origin, or it is "*".
func isOrigin(s string) bool {
	if s == "*" || s == "null" {
		return true
	}
	scheme, host, ok := strings.Cut(s, "://")
	return ok && scheme != "" && (host != "" || scheme == "file") && !strings.ContainsAny(host, "/?#@* ,")
}

func (c *Codec) handshakeTimeout() time.Duration {
	return cmp.Or(c.HandshakeTimeout, DefaultHandshakeTimeout)
}
func (c *Codec) maxHandshake() int { return cmp.Or(c.MaxHandshake, DefaultMaxHandshake) }
func (c *Codec) maxMessage() int   { return cmp.Or(c.MaxMessage, codec.DefaultMax) }
func (c *Codec) maxSend() int      { return cmp.Or(c.MaxSend, c.maxMessage()) }
func (c *Codec) maxFrame() int     { return cmp.Or(c.MaxFrame, c.maxMessage()) }
func (c *Codec) compressMin() int  { return cmp.Or(c.CompressMin, DefaultCompressMin) }
