// Command match is a game for browsers: dots that move in a field. The players of a match live on one
// loop, so the match is plain code without a lock. Read match.go (a match and its players), main.go
// (the server, the page and the process) and page/ (the page).
package main

import (
	"context"
	"embed"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"

	"github.com/rs/zerolog"

	"github.com/loopwheel/loopwheel/codec/websocket"
	"github.com/loopwheel/loopwheel/handler"
	"github.com/loopwheel/loopwheel/loop"
)

func main() {
	addr := flag.String("addr", "tcp://127.0.0.1:8080", "serve the page and its WebSocket on this `address`: tcp://host:port or unix://path")
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "match: unexpected arguments: %q\n", flag.Args())
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	if err := run(ctx, newServer(*addr, zerolog.New(os.Stderr).With().Timestamp().Logger())); err != nil {
		fmt.Fprintln(os.Stderr, "match:", err)
		os.Exit(1)
	}
}

//go:embed page
var files embed.FS

// newServer returns the server. One port serves the page and its WebSocket.
func newServer(addr string, log zerolog.Logger) *loop.Server {
	page, err := fs.Sub(files, "page")
	if err != nil {
		panic(err) // the directory is embedded
	}
	server := http.FileServerFS(page)
	g := &game{}
	srv := &loop.Server{
		Addr: addr,
		Codec: &websocket.Codec{
			Path: "/ws",
			HTTP: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:")
				server.ServeHTTP(w, r)
			}),
			MaxMessage: 1 << 10,
		},
		Accept: handler.Chain(g.accept, handler.Limit{PerSecond: 50, Drop: true}),
		Logger: log,
	}
	g.server = srv
	return srv
}

// run serves until ctx is done and all connections have been drained.
func run(ctx context.Context, srv *loop.Server) error {
	if srv.Addr == "" {
		return errors.New("-addr is empty")
	}
	if err := srv.Start(ctx); err != nil {
		return fmt.Errorf("-addr %s: %w", srv.Addr, err)
	}
	fmt.Printf("match: listening on %s://%s\n", srv.LocalAddr().Network(), srv.LocalAddr())
	if tcp, ok := srv.LocalAddr().(*net.TCPAddr); ok {
		fmt.Printf("match: open http://%s/\n", tcp)
	}
	err := srv.Wait()
	fmt.Println("match: drained, bye")
	return err
}
