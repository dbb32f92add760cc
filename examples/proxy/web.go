package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/loopmetrics"
)

// numbers are what is told of a backend. Bytes are of connections that have ended.
type numbers struct {
	Backend string `json:"backend"`
	Up      bool   `json:"up"`
	Conns   int64  `json:"conns"`
	Total   uint64 `json:"total"`
	Failed  uint64 `json:"failed"`
	In      uint64 `json:"in"`
	Out     uint64 `json:"out"`
}

func (b *backend) numbers() numbers {
	return numbers{b.addr, b.up.Load(), b.conns.Load(), b.total.Load(), b.failed.Load(), b.in.Load(), b.out.Load()}
}

// listenWeb returns nil if there is no address.
func listenWeb(addr string) (net.Listener, error) {
	if addr == "" {
		return nil, nil
	}
	return net.Listen("tcp", addr)
}

// serveWeb shows the server and its backends on ln, unless that is nil, until ctx is done.
func (p *proxy) serveWeb(ctx context.Context, srv *loop.Server, ln net.Listener, out io.Writer) {
	if ln == nil {
		return
	}
	mux := http.NewServeMux()
	mux.Handle("/", loopmetrics.NewHandler(srv))
	mux.HandleFunc("/backends", p.showBackends)
	web := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	context.AfterFunc(ctx, func() { _ = web.Close() })
	go func() { _ = web.Serve(ln) }()
	fmt.Fprintf(out, "proxy: live page on http://%s/, metrics on http://%s/metrics, backends on http://%s/backends\n",
		ln.Addr(), ln.Addr(), ln.Addr())
}

// showBackends answers with JSON.
func (p *proxy) showBackends(w http.ResponseWriter, _ *http.Request) {
	all := make([]numbers, len(p.backends))
	for i, b := range p.backends {
		all[i] = b.numbers()
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(all)
}
