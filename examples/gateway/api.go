package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/loopwheel/loopwheel/handler"
	"github.com/loopwheel/loopwheel/loop"
)

var errOffline = errors.New("the device is not connected")

// api returns the handler for programs that have something to say to devices. It runs on goroutines
// of net/http, which may touch no connection: they send functions to its loop, and wait.
func (g *gateway) api() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /devices", func(w http.ResponseWriter, _ *http.Request) {
		names := maps.Collect(g.devices.All())
		_ = json.NewEncoder(w).Encode(slices.AppendSeq([]string{}, maps.Keys(names)))
	})
	mux.HandleFunc("POST /devices/{name}/command", g.forDevice(g.command))
	mux.HandleFunc("POST /devices/{name}/message", g.forDevice(g.message))
	return g.guard(mux)
}

// guard keeps pages of other sites, in the browsers of those who reach the API, from commanding
// devices. Such a page may have given its own name our address, so that to the browser both are one
// site; but the request names it.
func (g *gateway) guard(next http.Handler) http.Handler {
	next = http.NewCrossOriginProtection().Handler(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host, _, err := net.SplitHostPort(r.Host)
		if err != nil {
			host = r.Host // without a port
		}
		_, err = netip.ParseAddr(strings.Trim(host, "[]")) // no name can be given an address in place of one
		if err != nil && !strings.EqualFold(host, "localhost") && !slices.Contains(g.names, strings.ToLower(host)) {
			http.Error(w, "the API is not known by this name: use its IP address, or see -names", http.StatusMisdirectedRequest)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// command sends a command to a device and returns its answer. It waits for as long as
// commandTimeout, and returns at once when the device has gone.
func (g *gateway) command(ctx context.Context, device string, payload []byte) (answer []byte, err error) {
	ref := g.devices.Get(device)
	if ref == (loop.Ref{}) {
		return nil, errOffline
	}
	return handler.AskConnWait(ctx, ref, func(c *loop.Conn, question handler.Question[[]byte]) {
		sessionOf(c).command(c, payload, func(answer []byte, err error) {
			if err != nil {
				question.Fail(err)
				return
			}
			question.Answer(answer)
		})
	})
}

// message keeps a message for a device, which gets it at once if it is connected, and otherwise
// when it has logged in.
func (g *gateway) message(_ context.Context, device string, payload []byte) ([]byte, error) {
	if err := g.outbox.add(device, payload); err != nil {
		return nil, err
	}
	// A login enters the registry first and then looks for messages. Here it is the other way round:
	// so one of the two delivers the message.
	err := g.devices.Get(device).Tell(func(c *loop.Conn) { sessionOf(c).deliver(c) })
	if errors.Is(err, loop.ErrClosed) {
		err = nil // the device is not connected: it gets the message when it logs in
	}
	return nil, err
}

// sessionOf returns a connection's session, which the heartbeat may have wrapped.
func sessionOf(c *loop.Conn) *session {
	s, _ := loop.HandlerAs[*session](c)
	return s
}

// forDevice returns an HTTP handler that gives a request's body to f, and answers with its answer.
func (g *gateway) forDevice(f func(ctx context.Context, device string, payload []byte) ([]byte, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxPayload))
		var answer []byte
		if err == nil {
			answer, err = f(r.Context(), r.PathValue("name"), body)
		}
		var tooLarge *http.MaxBytesError
		switch {
		case err == nil:
			_, _ = w.Write(answer)
		case errors.Is(err, errMoving), errors.Is(err, errOffline) && g.moved.Load(): // the next process accepts here, too
			w.Header().Set("Connection", "close")
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		case errors.Is(err, errOffline):
			http.Error(w, err.Error(), http.StatusNotFound)
		case errors.Is(err, handler.ErrCallTimeout):
			http.Error(w, err.Error(), http.StatusGatewayTimeout)
		case errors.Is(err, errFull):
			http.Error(w, err.Error(), http.StatusInsufficientStorage)
		case errors.As(err, &tooLarge):
			http.Error(w, err.Error(), http.StatusRequestEntityTooLarge)
		default: // the device has gone, or has too many commands
			http.Error(w, "no answer: "+err.Error(), http.StatusBadGateway)
		}
	}
}
