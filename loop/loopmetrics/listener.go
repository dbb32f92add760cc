package loopmetrics

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/loop"
)

const (
	// headEnd ends the head of a request.
	headEnd = "\r\n\r\n"

	// maxHead is how long it may be.
	maxHead = 16 << 10

	// maxRest is for how long a connection may be silent between requests.
	maxRest = 5 * time.Minute
)

// Listener returns a listener for Server.Listeners, on which the server's loops serve what h does:
//
//	srv.Listeners = append(srv.Listeners, loopmetrics.NewHandler(srv).Listener("tcp://127.0.0.1:9090"))
//
// A scrape there costs a fraction of what it costs with net/http, which wakes several goroutines
// for each request; a loop only looks whether there is an answer of this second, and what has to be
// made is made by Offload. But it shares the server's fate: its connections count as others do, and
// for its limits; a loop that is blocked answers no scrape; and when the server has ended nobody
// does. It speaks HTTP/1.1, and HTTPS if the listener is given TLS.
func (h *Handler) Listener(addr string) loop.Listener {
	return loop.Listener{
		Addr: addr, Codec: codec.Delimiter{Delim: headEnd, Max: maxHead}, IdleTimeout: maxRest,
		Accept: func(c *loop.Conn) loop.Handler {
			v := &visitor{handler: h}
			c.OnEOF(func() { v.leave(c) })
			return v
		},
	}
}

// A visitor is a connection of Listener. No request that is of use here has a body: so the head is
// the frame.
type visitor struct {
	handler *Handler
	waiting int  // requests whose answers are being made
	last    bool // it asks no more
}

// leave is what happens when the peer has ended its output: it may still wait for answers.
func (v *visitor) leave(c *loop.Conn) {
	if v.last = true; v.waiting == 0 {
		c.Close()
	}
}

var (
	errBody    = errors.New("loopmetrics: a request with a body")
	errNoHost  = errors.New("loopmetrics: a request without a host")
	errVersion = errors.New("loopmetrics: a request that is not of HTTP/1")
)

// OnMessage implements loop.Handler.
func (v *visitor) OnMessage(c *loop.Conn, head []byte) error {
	r, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(append(bytes.Clone(head), headEnd...))))
	switch {
	case err != nil:
		return v.refuse(c, http.StatusBadRequest, fmt.Errorf("loopmetrics: %w", err))
	case r.ProtoMajor != 1:
		return v.refuse(c, http.StatusHTTPVersionNotSupported, errVersion)
	case r.Host == "" && r.ProtoMinor > 0:
		return v.refuse(c, http.StatusBadRequest, errNoHost)
	case r.ContentLength != 0:
		return v.refuse(c, http.StatusRequestEntityTooLarge, errBody)
	}
	h := v.handler
	h.once.Do(h.init)
	if v.waiting == 0 && r.Method == http.MethodGet && r.URL.Path == metricsPath {
		if a := h.metrics.ready(r); a != nil {
			return v.answer(c, r, a)
		}
	}
	r.RemoteAddr = c.RemoteAddr().String()
	v.waiting++
	return loop.Offload(c, func(ctx context.Context) *answer {
		a := newAnswer()
		h.ServeHTTP(a, r.WithContext(ctx))
		return a
	}, func(c *loop.Conn, a *answer) {
		v.waiting--
		if err := v.answer(c, r, a); err != nil {
			c.CloseWithError(err)
		}
	})
}

// OnClose implements loop.Handler.
func (v *visitor) OnClose(*loop.Conn, error) {}

// refuse tells what is wrong. The connection closes with err: where the next request would begin is
// not known.
func (v *visitor) refuse(c *loop.Conn, status int, err error) error {
	a := newAnswer()
	http.Error(a, err.Error(), status)
	_ = v.answer(c, &http.Request{Close: true}, a)
	return err
}

// answer answers a request.
func (v *visitor) answer(c *loop.Conn, r *http.Request, a *answer) error {
	_, err := c.Write(a.wire(r))
	if r.Close || v.last && v.waiting == 0 {
		c.Close()
	}
	return err
}

// wire returns the answer to r as HTTP/1.1 has it.
func (a *answer) wire(r *http.Request) []byte {
	h := a.header.Clone()
	h.Set("Date", a.at.UTC().Format(http.TimeFormat))
	bare := a.status == http.StatusNoContent || a.status == http.StatusNotModified
	if !bare && h.Get("Content-Length") == "" { // who answers HEAD knows it better
		h.Set("Content-Length", strconv.Itoa(a.body.Len()))
	}
	if r.Close {
		h.Set("Connection", "close")
	}
	var out bytes.Buffer
	fmt.Fprintf(&out, "HTTP/1.1 %d %s\r\n", a.status, http.StatusText(a.status))
	_ = h.Write(&out)
	out.WriteString("\r\n")
	if r.Method != http.MethodHead {
		out.Write(a.body.Bytes())
	}
	return out.Bytes()
}
