package loopmetrics

import (
	"cmp"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/loopwheel/loopwheel/internal/hostguard"
	"github.com/loopwheel/loopwheel/loop"
)

// ErrClosedByHand is the error with which OnClose is called when a user closes a connection with
// the button of the live page.
var ErrClosedByHand = errors.New("loopmetrics: closed by hand, on the live page")

// A Handler serves the live page at /, and metrics at /metrics. Use NewHandler to make one, and set
// the fields before it serves.
//
// Both reveal much about the server and its peers, and the page can close connections. So serve it
// where only operators can reach it, as on the loopback interface. The page refuses cross-site
// requests and requests for unknown host names: it answers to IP addresses, to localhost, and to
// Hosts. /metrics answers to any name.
type Handler struct {
	// Hosts are additional host names, without a port, for which the page answers, such as that of
	// a proxy in front of it. The check keeps a foreign site whose name resolves to this server's
	// address from reading the page.
	Hosts []string

	// ReadOnly makes the page unable to close connections.
	ReadOnly bool

	server   *loop.Server
	registry *prometheus.Registry
	once     sync.Once
	http     http.Handler
	look     looker
}

// NewHandler returns a Handler for s. /metrics contains the metrics of s, of Go, and of the
// process, and those of the collectors in more, such as a timing.Scheduler's. An answer may be up
// to two seconds old. It returns the error of the registry if two collectors have the same metrics.
func NewHandler(s *loop.Server, more ...prometheus.Collector) (*Handler, error) {
	h := &Handler{server: s, registry: prometheus.NewRegistry()}
	all := append([]prometheus.Collector{NewCollector(s), collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})}, more...)
	for _, c := range all {
		if err := h.registry.Register(c); err != nil {
			return nil, fmt.Errorf("loopmetrics: NewHandler: %w", err)
		}
	}
	return h, nil
}

//go:embed page
var page embed.FS

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.once.Do(h.init)
	h.http.ServeHTTP(w, r)
}

func (h *Handler) init() {
	if h.registry == nil {
		panic("loopmetrics: a Handler that NewHandler has not made")
	}
	h.look.server, h.look.most = h.server, cmp.Or(h.look.most, maxSeen)
	mux, all := http.NewServeMux(), http.NewServeMux()
	all.Handle("/", hostguard.New(h.Hosts, mux))
	all.Handle("GET /metrics", &recent{next: promhttp.HandlerFor(h.registry, promhttp.HandlerOpts{})})
	mux.HandleFunc("GET /state", h.state)
	mux.HandleFunc("POST /close", h.close)
	for path, file := range map[string]string{"/{$}": "page.html", "/page.js": "page.js", "/page.css": "page.css"} {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Security-Policy", "default-src 'self'; img-src data:; frame-ancestors 'none'")
			http.ServeFileFS(w, r, page, "page/"+file)
		})
	}
	h.http = all
}

// state is what the page asks for, each second.
func (h *Handler) state(w http.ResponseWriter, _ *http.Request) {
	s := h.look.snapshot()
	s.ReadOnly = h.ReadOnly
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	_ = json.NewEncoder(w).Encode(s)
}

// close closes a connection.
func (h *Handler) close(w http.ResponseWriter, r *http.Request) {
	if h.ReadOnly {
		http.Error(w, "this page only shows", http.StatusForbidden)
		return
	}
	index, err := strconv.Atoi(r.URL.Query().Get("loop"))
	id, errID := strconv.ParseUint(r.URL.Query().Get("conn"), 10, 64)
	loops := h.server.Loops()
	if err != nil || errID != nil || index < 0 || index >= len(loops) {
		http.Error(w, "want /close?loop=NUMBER&conn=ID", http.StatusBadRequest)
		return
	}
	switch found, answered := closeConn(loops[index], id); {
	case !answered:
		http.Error(w, "the loop does not answer", http.StatusServiceUnavailable)
	case !found:
		http.Error(w, "there is no such connection any more", http.StatusNotFound)
	default:
		w.WriteHeader(http.StatusNoContent)
	}
}

// closeConn closes a connection, and looks for it in pieces: there may be a million.
func closeConn(l *loop.Loop, id uint64) (found, answered bool) {
	result := make(chan bool, 1)
	place := 0
	_, err := in.PostPieces(l, func() (more bool) {
		conns, next := in.ConnsFrom(l, place, maxSeen)
		place = next
		for c := range conns {
			if c.ID() == id {
				c.CloseWithError(ErrClosedByHand)
				result <- true
				return false
			}
		}
		if next == 0 {
			result <- false
		}
		return next != 0
	})
	if err != nil {
		return false, false
	}
	return await(result)
}
