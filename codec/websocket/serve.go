package websocket

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/loopwheel/loopwheel/codec"
)

// This file is plain HTTP, which net/http serves, by one http.Server for all connections of a
// Codec.

// DefaultHTTPIdleTimeout is how long a connection waits for its next HTTP request by default.
const DefaultHTTPIdleTimeout = 2 * time.Minute

// connKey is the key of a request's connection in its context.
type connKey struct{}

// serves reports whether net/http gets what is no upgrade.
func (c *connCodec) serves() bool {
	return (c.config.HTTP != nil || c.config.HTTPServer != nil) && c.peer != nil && c.peer.NetConn != nil
}

// serve leaves the connection, with all that has come, to net/http.
func (c *connCodec) serve() error {
	c.phase, c.beforeOpen = closed, nil
	return c.peer.NetConn(ErrHTTP, func(nc codec.NetConn) {
		go func() {
			ln := &oneConn{Conn: nc}
			_ = c.config.httpServer().Serve(ln) // a server that was shut down takes no connection
			if ln.Conn != nil {
				_ = nc.Close()
			}
		}()
	})
}

// httpServer returns the one http.Server.
func (c *Codec) httpServer() *http.Server {
	c.once.Do(func() {
		s := cmp.Or(c.HTTPServer, new(http.Server))
		s.Handler = c.handler(cmp.Or[http.Handler](c.HTTP, s.Handler, http.DefaultServeMux))
		s.ReadHeaderTimeout = cmp.Or(s.ReadHeaderTimeout, s.ReadTimeout, c.handshakeTimeout())
		s.IdleTimeout = cmp.Or(s.IdleTimeout, s.ReadTimeout, DefaultHTTPIdleTimeout)
		s.MaxHeaderBytes = cmp.Or(s.MaxHeaderBytes, c.maxHandshake())
		state, inContext := s.ConnState, s.ConnContext
		s.ConnState = func(nc net.Conn, now http.ConnState) {
			if ours, ok := nc.(codec.NetConn); ok {
				ours.SetBusy(now == http.StateNew || now == http.StateActive)
			}
			if state != nil {
				state(nc, now)
			}
		}
		s.ConnContext = func(ctx context.Context, nc net.Conn) context.Context {
			if inContext != nil {
				ctx = inContext(ctx, nc)
			}
			return context.WithValue(ctx, connKey{}, nc)
		}
		c.server = s
	})
	return c.server
}

// handler returns h for all requests but upgrades.
func (c *Codec) handler(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		nc, ok := r.Context().Value(connKey{}).(codec.NetConn)
		if !ok { // it came by a listener of the user's
			h.ServeHTTP(w, r)
			return
		}
		defer func() {
			if v := recover(); v == http.ErrAbortHandler {
				panic(v)
			} else if v != nil {
				nc.Panicked(v)
				panic(http.ErrAbortHandler)
			}
		}()
		if c.isUpgrade(r) {
			c.giveBack(nc, w, r)
		} else {
			h.ServeHTTP(w, r)
		}
	})
}

// giveBack restarts the connection with a handshake that follows other requests.
func (c *Codec) giveBack(nc codec.NetConn, w http.ResponseWriter, r *http.Request) {
	head := sink{data: fmt.Appendf(nil, "%s %s %s\r\nHost: %s\r\n", r.Method, r.RequestURI, r.Proto, r.Host)}
	if len(r.TransferEncoding) > 0 {
		head.field("Transfer-Encoding", "chunked")
	}
	_ = r.Header.Write(&head) // memory does not fail
	head.data = append(head.data, "\r\n"...)
	if limit := c.maxHandshake(); len(head.data) > limit {
		http.Error(w, fmt.Sprintf("the request is longer than %d bytes", limit), http.StatusRequestHeaderFieldsTooLarge)
		return
	}
	_, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(err)
	}
	rest, _ := rw.Reader.Peek(rw.Reader.Buffered())
	_ = nc.GiveBack(append(head.data, rest...))
}

// oneConn is a net.Listener that accepts its Conn.
type oneConn struct{ net.Conn }

func (l *oneConn) Accept() (net.Conn, error) {
	c := l.Conn
	if l.Conn = nil; c == nil {
		return nil, net.ErrClosed
	}
	return c, nil
}

func (l *oneConn) Close() error   { return nil }
func (l *oneConn) Addr() net.Addr { return l.LocalAddr() }
