package main

import (
	"crypto/rand"
	"crypto/tls"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/codec/websocket"
	"github.com/loopwheel/loopwheel/handler"
	"github.com/loopwheel/loopwheel/internal/certs"
	"github.com/loopwheel/loopwheel/internal/cli"
	"github.com/loopwheel/loopwheel/internal/hostguard"
	"github.com/loopwheel/loopwheel/loop"
)

//go:embed page.html
var page string

var pageScript = hostguard.ScriptSource(page)

// options are what the flags say.
type options struct {
	metrics    string // address of the live page, if any
	web, lines string
	idle, ping time.Duration
	rate       float64
	history    int
	loops      int
	origins    []string
	redis      string
	also       []string      // addresses of other servers of the same chat, for pages
	lease      time.Duration // how long presence outlives a process
	level      zerolog.Level
	logger     zerolog.Logger

	certs certs.Flags
	tls   *tls.Config // what they ask for; nil means plain
}

// check looks at the flags, and reads the files that they name.
func (o *options) check() (err error) {
	if o.tls, err = o.certs.Config(); err != nil {
		return err
	}
	for flag, addr := range map[string]string{"-addr": o.web, "-lines": o.lines} {
		if err := cli.CheckAddr(addr, "tcp"); err != nil {
			return fmt.Errorf("invalid value %q for flag %s: %w", addr, flag, err)
		}
	}
	if o.metrics != "" {
		if err := cli.CheckHostPort(o.metrics); err != nil {
			return fmt.Errorf("invalid value %q for flag -metrics: %w", o.metrics, err)
		}
	}
	if o.idle <= 0 || o.ping <= 0 || !(o.rate > 0) || o.lease < 0 || o.history < 0 || o.loops < 0 {
		return errors.New("-idle, -ping and -rate must be positive, and -lease, -history and -loops not negative")
	}
	return nil
}

// Codes of close frames, of those that are for an application's own use. The page knows them.
const (
	closedIdle  websocket.StatusCode = 4000 // said nothing for too long
	closedDead  websocket.StatusCode = 4001 // did not answer pings
	closedFlood websocket.StatusCode = 4002 // said too much
	closedQuit  websocket.StatusCode = 4003 // /quit
	closedGhost websocket.StatusCode = 4004 // the same page has come again
	closedName  websocket.StatusCode = 4005 // the nickname or the room will not do
	closedLater websocket.StatusCode = 4006 // Redis is away
)

const (
	maxLine   = 2000        // bytes of what one may say
	maxEvent  = 1 << 20     // bytes of what we send: the names of all in a large room
	showEvery = time.Second // the live view
)

// A chat is all that connections share.
type chat struct {
	opt      options
	id       string // of this process
	house    house
	watchers handler.Group // of the live view
	server   *loop.Server
	began    time.Time
	kicked   atomic.Uint64 // for silence
	dead     atomic.Uint64 // for missed pongs
	flooded  atomic.Uint64
	said     atomic.Uint64
}

func newChat(opt options) *chat { return &chat{opt: opt, began: time.Now(), id: rand.Text()} }

// newServer returns a server with rooms of its own.
func newServer(opt options) *loop.Server {
	ch := newChat(opt)
	return ch.serve(newLocalHouse(ch))
}

// serve puts the server together: two listeners, the same loops, one chat.
func (ch *chat) serve(h house) *loop.Server {
	ch.house = h
	opt := ch.opt
	limit := handler.Limit{PerSecond: opt.rate, Burst: int(opt.rate*4) + 1}
	heartbeat := handler.Heartbeat{Interval: opt.ping, Jitter: opt.ping / 10, Ping: ping}
	logs := handler.Log{}
	ch.server = &loop.Server{
		Addr:     opt.web,
		TLS:      opt.tls,
		NumLoops: opt.loops,
		Logger:   opt.logger,
		Codec: &websocket.Codec{
			Path:       "/ws",
			Origins:    append(slices.Clone(opt.origins), opt.also...),
			HTTP:       http.HandlerFunc(ch.servePage),
			MaxMessage: maxLine,
			MaxSend:    maxEvent,
			Status:     status,
		},
		Accept: handler.Chain(ch.acceptSocket, logs, limit, heartbeat),
		Listeners: []loop.Listener{{
			Addr:   opt.lines,
			TLS:    opt.tls,
			Codec:  plain{codec.Lines{Max: maxLine}},
			Accept: handler.Chain(ch.acceptLines, logs, limit),
		}},
		OnDrain: func(c *loop.Conn) {
			if websocket.Of(c) == nil { // a browser is told by the close frame
				note(c, "the server restarts: goodbye")
			}
		},
		OnStart: func(l *loop.Loop) {
			if l.Index() == 0 {
				l.Every(showEvery, ch.show)
			}
		},
	}
	return ch.server
}

// servePage is all of HTTP that there is.
func (ch *chat) servePage(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.URL.Path != "/":
		http.NotFound(w, r)
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		http.Error(w, "only GET", http.StatusMethodNotAllowed)
	default:
		h := w.Header()
		h.Set("Content-Type", "text/html; charset=utf-8")
		h.Set("Cache-Control", "no-cache")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Content-Security-Policy", "default-src 'none'; script-src "+pageScript+"; style-src 'unsafe-inline'; connect-src 'self'"+ch.others()+"; img-src data:; frame-ancestors 'none'")
		_, _ = io.WriteString(w, page)
	}
}

// others are the addresses that the page may connect to besides our own.
func (ch *chat) others() (list string) {
	for _, a := range ch.opt.also {
		list += " ws" + strings.TrimPrefix(a, "http")
	}
	return list
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
