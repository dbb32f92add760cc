// Command chat is a chat for browsers, with rooms, names and a history, in one process. Read
// session.go (one connection), rooms.go (what all connections share), main.go (the server, the page
// and the process) and page/ (the page).
package main

import (
	"context"
	"embed"
	"encoding/json"
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
		fmt.Fprintf(os.Stderr, "chat: unexpected arguments: %q\n", flag.Args())
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	log := zerolog.New(os.Stderr).With().Timestamp().Logger()
	if err := run(ctx, newServer(*addr, log)); err != nil {
		fmt.Fprintln(os.Stderr, "chat:", err)
		os.Exit(1)
	}
}

// newServer returns the server. One port serves the page and its WebSocket.
func newServer(addr string, log zerolog.Logger) *loop.Server {
	limit := handler.Limit{PerSecond: 5, Burst: 20, Drop: true, Exceeded: func(c *loop.Conn, msg []byte) {
		var r request
		_ = json.Unmarshal(msg, &r) // what it is does not matter any more
		send(c, event{Type: "unsaid", ID: r.ID, Text: "that was too much at once"})
	}}
	return &loop.Server{
		Addr: addr,
		Codec: &websocket.Codec{
			Path:       "/ws",
			HTTP:       servePage(),
			MaxMessage: 16 << 10, // maxText characters in JSON
			MaxSend:    1 << 20,  // the names of all members of a room
		},
		Accept: handler.Chain(newChat().accept, limit),
		Logger: log,
	}
}

//go:embed page
var files embed.FS

// servePage returns the HTTP handler of the page.
func servePage() http.Handler {
	page, err := fs.Sub(files, "page")
	if err != nil {
		panic(err) // the directory is embedded
	}
	server := http.FileServerFS(page)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Cache-Control", "no-cache")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; "+
			"connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
		server.ServeHTTP(w, r)
	})
}

// run serves until ctx is done and all connections have been drained.
func run(ctx context.Context, srv *loop.Server) error {
	if srv.Addr == "" {
		return errors.New("-addr is empty")
	}
	if err := srv.Start(ctx); err != nil {
		return fmt.Errorf("-addr %s: %w", srv.Addr, err)
	}
	fmt.Printf("chat: listening on %s://%s\n", srv.LocalAddr().Network(), srv.LocalAddr())
	if tcp, ok := srv.LocalAddr().(*net.TCPAddr); ok {
		fmt.Printf("chat: open http://%s/\n", tcp)
	}
	err := srv.Wait()
	fmt.Println("chat: drained, bye")
	return err
}
