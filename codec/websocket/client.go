package websocket

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/textproto"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/loopwheel/loopwheel/codec"
)

// A Client is the configuration of WebSocket for dialed connections: the Codec of a loop.Dialer.
// It is a codec.Stateful. Only URL must be set.
//
//	ws := &websocket.Client{URL: "wss://example.com/chat"}
//	loop.Dialer{Codec: ws, TLS: ws.TLS()}.Dial(l, ws.Addr(), open)
//
// The Client sends the request, and the Dialer waits for the answer: open gets the connection when
// the handshake is done, and may send at once, or it gets the error. That wraps a *HandshakeError
// if the server refused or its answer was invalid; redirects are not followed. The limits are those
// of a Codec, and hold against a hostile server.
//
// Use it by its address. The fields must not be changed once it is used. Its functions are called
// on the loop of the connection concerned, and must not block.
type Client struct {
	// URL is what the Client requests: "ws://host:port/path?query", or "wss://", which requires
	// TLS. The Dialer connects to its own address, so the host may differ. It must have no user
	// (use Authorization in Header) and no fragment.
	URL string

	// Header has further fields of the request, such as Authorization, Cookie, Origin, or a
	// User-Agent in place of net/http's. It must not have Host (see Prepare), nor fields of the
	// handshake or the framing.
	Header http.Header

	// Prepare, if not nil, is called for each connection before its request is sent, for example to
	// add a fresh token. It may change the Header, the URL and the Host of r, which belongs to this
	// connection. An error closes the connection, and nothing is sent.
	Prepare func(r *http.Request) error

	// Protocols are the requested subprotocols, the preferred one first. The server chooses one of
	// them or none: see Conn.Protocol.
	Protocols []string

	// The rest is as in Codec. MaxHandshake bounds the head of the response; HandshakeTimeout
	// applies in addition to Dialer.Timeout; Compress offers what a Codec accepts.
	Binary           bool
	MaxHandshake     int
	HandshakeTimeout time.Duration
	MaxMessage       int
	MaxSend          int
	MaxFrame         int
	Compress         bool
	CompressMin      int
	Status           func(err error) (code StatusCode, reason string)

	noConn
	once   sync.Once
	shared *Codec // what both sides have
}

// New returns the codec of one connection. Any goroutine may call it.
func (c *Client) New() codec.Codec {
	c.once.Do(func() { c.shared = c.asCodec() })
	return &clientCodec{connCodec: connCodec{config: c.shared}, client: c}
}

func (c *Client) asCodec() *Codec {
	return &Codec{
		Binary: c.Binary, MaxHandshake: c.MaxHandshake, HandshakeTimeout: c.HandshakeTimeout,
		MaxMessage: c.MaxMessage, MaxSend: c.MaxSend, MaxFrame: c.MaxFrame,
		Compress: c.Compress, CompressMin: c.CompressMin, Status: c.Status,
		Protocols: c.Protocols, masked: maskBit,
	}
}

// Addr returns the URL's address in the form that loop.Dialer.Dial takes, "tcp://host:port", with
// the scheme's default port if the URL has none. Dialing it reports an invalid URL.
func (c *Client) Addr() string {
	u, err := c.parse()
	if err != nil {
		return "tcp://:0" // the Dialer comes to Validate, and not to this
	}
	port := cmp.Or(u.Port(), map[string]string{"ws": "80", "wss": "443"}[u.Scheme])
	return "tcp://" + net.JoinHostPort(u.Hostname(), port)
}

// TLS returns a new config for the Dialer's TLS; nil unless the URL is wss. The caller may change
// it before use, for example to trust other roots.
func (c *Client) TLS() *tls.Config {
	u, err := c.parse()
	if err != nil || u.Scheme != "wss" {
		return nil
	}
	host, _, _ := strings.Cut(u.Hostname(), "%") // certificates have no zone
	return &tls.Config{ServerName: host, NextProtos: []string{"http/1.1"}}
}

// Validate implements codec.Validator.
func (c *Client) Validate() error {
	if err := c.asCodec().check("Client"); err != nil {
		return err
	}
	if err := checkHeader(c.Header); err != nil {
		return wrong("Client", "Header: %w", err)
	}
	_, err := c.parse()
	return err
}

// parse returns the URL to request.
func (c *Client) parse() (*url.URL, error) {
	u, err := url.Parse(c.URL)
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err // and not all of the URL, which may have a password in it
	}
	if err == nil {
		u.Host = strings.TrimSuffix(u.Host, ":")
		err = checkURL(u)
	}
	if err != nil {
		return nil, wrong("Client", "URL: %w", err)
	}
	return u, nil
}

// checkURL returns what is wrong with u (RFC 6455 section 3), for its author. The error may be
// logged, and the path and query may be secret: it has neither.
func checkURL(u *url.URL) error {
	switch {
	case u.Scheme != "ws" && u.Scheme != "wss":
		return fmt.Errorf("the scheme %q: want \"ws://host/path\" or \"wss://host/path\"", u.Scheme)
	case u.Hostname() == "" || u.Opaque != "":
		return errors.New("no host in it")
	case u.User != nil:
		return errors.New("a user in it, which belongs in Header, as Authorization")
	case u.Fragment != "":
		return errors.New("a fragment in it")
	case strings.ContainsFunc(u.Host, func(r rune) bool { return r > '~' }):
		return fmt.Errorf("the host %q must be in its ASCII form, \"xn--...\"", u.Host)
	case strings.ContainsFunc(u.RequestURI(), func(r rune) bool { return r <= ' ' || r > '~' }):
		return errors.New("its query must be escaped")
	}
	if port := u.Port(); port != "" {
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return fmt.Errorf("there is no port %s", port)
		}
	}
	return nil
}

// checkHeader returns why h cannot be sent with a handshake.
func checkHeader(h http.Header) error {
	for name, values := range h {
		if !isToken(name) {
			return fmt.Errorf("%q is no name", name)
		}
		switch canonical := textproto.CanonicalMIMEHeaderKey(name); canonical {
		case "Host", "Connection", "Upgrade", "Content-Length", "Transfer-Encoding", "Trailer":
			return fmt.Errorf("%s cannot be set here", canonical)
		default:
			if strings.HasPrefix(canonical, "Sec-Websocket-") {
				return fmt.Errorf("%s cannot be set here", canonical)
			}
		}
		for _, v := range values {
			if strings.ContainsFunc(v, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }) {
				return fmt.Errorf("the value of %s has a control character in it", name)
			}
		}
	}
	return nil
}
