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

// A Client is the configuration of WebSocket for connections that are dialled: the Codec of a
// loop.Dialer. It is a codec.Stateful: the codec of each connection has a *Conn, which Of returns.
// All that must be set is URL.
//
//	ws := &websocket.Client{URL: "wss://example.com/chat"}
//	loop.Dialer{Codec: ws, TLS: ws.TLS()}.Dial(l, ws.Addr(), open)
//
// The request goes out by itself, and the Dialer waits for the answer: open gets the connection
// when the handshake is done, and may send at once, or it gets the reason why there is none. That
// has a *HandshakeError in it if the server refused, or its answer was wrong; nothing is followed
// that leads elsewhere. The limits are those of a Codec, and hold against a hostile server.
//
// Use it by its address. The fields must not be changed once it is used; the functions are called
// on the loop of the connection concerned, and must not block.
type Client struct {
	// URL is what is asked for: "ws://host:port/path?query", or "wss://", which goes over TLS and
	// over nothing else. The Dialer connects to its own address, so the host need not be the same.
	// There may be no user in it (which goes into Header, as Authorization), and no fragment.
	URL string

	// Header is what the request has besides, such as Authorization, Cookie, Origin, or a User-Agent
	// in place of net/http's. The fields of the handshake itself are not for it.
	Header http.Header

	// Prepare, if not nil, is called for each connection before its request is sent: for tokens that
	// change. It may change the Header, the URL and the Host of r, which is the connection's own. An
	// error closes the connection with it, and nothing is sent.
	Prepare func(r *http.Request) error

	// Protocols are the subprotocols that are asked for, the best one first. The server chooses one
	// of them or none: see Conn.Protocol.
	Protocols []string

	// The rest is as in Codec. MaxHandshake is for the answer to the request, without a body;
	// HandshakeTimeout holds beside Dialer.Timeout; Compress asks for what a Codec offers.
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
	return &clientConn{Conn: Conn{config: c.shared}, client: c}
}

func (c *Client) asCodec() *Codec {
	return &Codec{
		Binary: c.Binary, MaxHandshake: c.MaxHandshake, HandshakeTimeout: c.HandshakeTimeout,
		MaxMessage: c.MaxMessage, MaxSend: c.MaxSend, MaxFrame: c.MaxFrame,
		Compress: c.Compress, CompressMin: c.CompressMin, Status: c.Status,
		Protocols: c.Protocols, masked: maskBit,
	}
}

// Addr returns the URL's address in the form that loop.Dialer.Dial takes, "tcp://host:port", with the
// scheme's own port if the URL has none. To dial it says what is wrong with the URL, if something
// is.
func (c *Client) Addr() string {
	u, err := c.parse()
	if err != nil {
		return "tcp://:0" // the Dialer comes to Validate, and not to this
	}
	port := cmp.Or(u.Port(), map[string]string{"ws": "80", "wss": "443"}[u.Scheme])
	return "tcp://" + net.JoinHostPort(u.Hostname(), port)
}

// TLS returns what the Dialer needs as its TLS: nil unless the URL is wss. It is made anew by each
// call, and may be changed before it is used, to trust other roots, say.
func (c *Client) TLS() *tls.Config {
	u, err := c.parse()
	if err != nil || u.Scheme != "wss" {
		return nil
	}
	host, _, _ := strings.Cut(u.Hostname(), "%") // a zone is nothing that a certificate has
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

// parse returns the URL as it is asked for.
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
		return errors.New("a user in it, which belongs into Header, as Authorization")
	case u.Fragment != "":
		return errors.New("a fragment in it")
	case strings.ContainsFunc(u.Host, func(r rune) bool { return r > '~' }):
		return fmt.Errorf("the host %q is to be written as it is looked up, \"xn--...\"", u.Host)
	case strings.ContainsFunc(u.RequestURI(), func(r rune) bool { return r <= ' ' || r > '~' }):
		return errors.New("its query is to be escaped")
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
			return fmt.Errorf("%s is not for the user to choose", canonical)
		default:
			if strings.HasPrefix(canonical, "Sec-Websocket-") {
				return fmt.Errorf("%s is not for the user to choose", canonical)
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
