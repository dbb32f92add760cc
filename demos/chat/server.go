package main

import (
	"crypto/tls"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/codec/websocket"
	"github.com/loopwheel/loopwheel/handler"
	"github.com/loopwheel/loopwheel/loop"
)

// Codes of close frames, of those that are for an application's own use. The page knows them.
const (
	closedIdle  websocket.StatusCode = 4000 // said nothing for too long
	closedDead  websocket.StatusCode = 4001 // did not answer pings
	closedFlood websocket.StatusCode = 4002 // said too much
	closedQuit  websocket.StatusCode = 4003 // /quit
	closedGhost websocket.StatusCode = 4004 // another has the nickname now
	closedName  websocket.StatusCode = 4005 // the nickname or the room will not do
	closedLater websocket.StatusCode = 4006 // Redis is away
)

const (
	maxInput = 16 << 10 // bytes of what one may send at once: well above maxText characters
	maxEvent = 1 << 20  // bytes of what we send: the names of all in a large room
)

// newServer puts the server together: two listeners with two codecs, on the same loops.
func (ch *chat) newServer() (*loop.Server, error) {
	opt := ch.opt
	var secure *tls.Config
	if opt.cert != "" {
		pair, err := tls.LoadX509KeyPair(opt.cert, opt.key)
		if err != nil {
			return nil, fmt.Errorf("-tls-cert and -tls-key: %w", err)
		}
		secure = &tls.Config{Certificates: []tls.Certificate{pair}}
	}
	limit := handler.Limit{PerSecond: opt.rate, Burst: int(opt.rate*4) + 1}
	heartbeat := handler.Heartbeat{Interval: opt.ping, Jitter: opt.ping / 10, Ping: ping}
	logs := handler.Log{}
	return &loop.Server{
		Addr:     opt.web,
		TLS:      secure,
		NumLoops: opt.loops,
		Logger:   opt.logger,
		Codec: &websocket.Codec{
			Path:       "/ws",
			Origins:    append(slices.Clone(opt.origins), opt.also...),
			HTTP:       servePage(opt.also),
			MaxMessage: maxInput,
			MaxSend:    maxEvent,
			Status:     status,
		},
		Accept: handler.Chain(ch.acceptSocket, logs, limit, heartbeat),
		Listeners: []loop.Listener{{
			Addr:   opt.lines,
			TLS:    secure,
			Codec:  plain{codec.Lines{Max: maxInput}},
			Accept: handler.Chain(ch.acceptLines, logs, limit),
		}},
		Hooks: loop.Hooks{OnDrain: func(c *loop.Conn) {
			if websocket.Of(c) == nil { // a browser gets the reason in the close frame
				note(c, "the server restarts: goodbye")
			}
		}},
	}, nil
}

//go:embed page
var files embed.FS

// servePage returns the HTTP handler of the page, which may connect to also, besides its own
// server.
func servePage(also []string) http.Handler {
	page, err := fs.Sub(files, "page")
	if err != nil {
		panic(err) // the directory is embedded
	}
	server := http.FileServerFS(page)
	connect := "'self'"
	for _, a := range also {
		connect += " ws" + strings.TrimPrefix(a, "http")
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Cache-Control", "no-cache")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; "+
			"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; connect-src "+connect)
		server.ServeHTTP(w, r)
	})
}

// ping is the heartbeat. Its data is the time, which the pong brings back.
func ping(c *loop.Conn) error {
	if w := websocket.Of(c); w == nil || !w.IsOpen() {
		return nil // the handshake has a time limit of its own
	}
	return websocket.Ping(c, time.Now().AppendFormat(nil, time.RFC3339Nano))
}

// status tells a browser why it was closed.
func status(err error) (websocket.StatusCode, string) {
	switch {
	case err == nil:
		return websocket.StatusNormal, ""
	case errors.Is(err, loop.ErrServerClosed):
		return websocket.StatusGoingAway, "the server restarts"
	case errors.Is(err, handler.ErrRateLimit):
		return closedFlood, "too many messages at once"
	case errors.Is(err, handler.ErrHeartbeat):
		return closedDead, "no answer to pings"
	}
	return websocket.StatusInternalError, "a fault of the server"
}
