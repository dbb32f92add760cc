// Command gateway connects devices, which speak a binary protocol, with programs that speak
// HTTP. Read codec.go (the wire), session.go (the connection of a device), outbox.go (messages
// for devices that are away), api.go (HTTP), main.go (the process, its restart and its end) and
// tls.go.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/cloudflare/tableflip"
	"github.com/rs/zerolog"

	"github.com/loopwheel/loopwheel/loop/loopmetrics"
)

var (
	addr       = flag.String("addr", "tcp://127.0.0.1:7000", "listen for devices on this `address`: tcp://host:port or unix://path")
	apiAddr    = flag.String("http", "127.0.0.1:7080", "serve the HTTP API on this `address`: whoever reaches it commands the devices")
	metrics    = flag.String("metrics", "", "serve a live page and Prometheus metrics on this `address`, such as 127.0.0.1:9090")
	useTLS     = flag.Bool("tls", false, "speak TLS with a certificate made on the spot, which nobody trusts")
	tlsCert    = flag.String("tls-cert", "", "speak TLS with the certificate in this `file` (PEM)")
	tlsKey     = flag.String("tls-key", "", "and its key in this `file` (PEM)")
	drain      = flag.Duration("drain", time.Second, "at the end serve devices for this `duration`, and send them away within as much again")
	pidFile    = flag.String("pid", "", "write the number of the process in charge to this `file`; SIGHUP replaces it")
	errStopped = errors.New("the server has stopped by itself")
)

func main() {
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "gateway:", err)
		os.Exit(1)
	}
}

// run serves until ctx is done or another process has taken over, and then ends everything in
// order.
func run(ctx context.Context) error {
	upgrader, err := tableflip.New(tableflip.Options{PIDFile: *pidFile})
	if err != nil {
		return err
	}
	defer upgrader.Stop()
	log := zerolog.New(os.Stderr).With().Timestamp().Logger()
	g := &gateway{key: []byte(os.Getenv("GATEWAY_KEY"))} // a flag would show it to everybody here
	srv := g.server(*drain, log)
	if srv.TLS, err = tlsConfig(*tlsCert, *tlsKey, *useTLS); err != nil {
		return err
	}
	network, address, _ := strings.Cut(*addr, "://")
	if srv.AcceptFrom, err = upgrader.Listen(network, address); err != nil {
		return fmt.Errorf("-addr %s: %w", *addr, err)
	}
	api, err := serveHTTP(upgrader, "-http", *apiAddr, g.api())
	if err != nil {
		return err
	}
	page, err := serveHTTP(upgrader, "-metrics", *metrics, loopmetrics.NewHandler(srv))
	if err != nil {
		return err
	}
	defer page.Close() // last of all: it shows how the rest ends

	serving, sendAway := context.WithCancel(context.Background())
	defer sendAway()
	if err := srv.Start(serving); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- srv.Wait() }()
	fmt.Printf("gateway: listening on %s://%s\n", network, srv.LocalAddr())
	fmt.Printf("gateway: commands on http://%s/devices\n", api.Addr)
	if *metrics != "" {
		fmt.Printf("gateway: live page on http://%s/, metrics on http://%[1]s/metrics\n", page.Addr)
	}
	go replaceOnHangup(upgrader, log)
	if err := upgrader.Ready(); err != nil {
		return err
	}
	select {
	case err := <-ended:
		return cmp.Or(err, errStopped)
	case <-upgrader.Exit():
		fmt.Println("gateway: another process has taken over")
	case <-ctx.Done():
		upgrader.Stop()
		<-upgrader.Exit() // it has removed the file of a unix socket
	}
	fmt.Printf("gateway: draining %d connections; Ctrl-C again ends at once\n", srv.Stats().Conns)

	// First the users of the devices: requests that wait for a device get its answer, and no new ones
	// come. Then the devices. After them what their handlers use, such as a database.
	patience, cancel := context.WithTimeout(context.Background(), commandTimeout+time.Second)
	defer cancel()
	_ = api.Shutdown(patience)
	sendAway()
	if err := <-ended; err != nil {
		return err
	}
	fmt.Println("gateway: drained, bye")
	return nil
}

// replaceOnHangup starts the program's file again on SIGHUP, which may be another version by
// now, and hands it the listening sockets. Both processes share the sockets' queues, so no
// connection is refused.
func replaceOnHangup(upgrader *tableflip.Upgrader, log zerolog.Logger) {
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	for range hangups {
		if err := upgrader.Upgrade(); err != nil {
			log.Error().Err(err).Msg("not replaced")
		}
	}
}

// serveHTTP serves h on the address that a flag has, or nowhere if that is empty.
func serveHTTP(upgrader *tableflip.Upgrader, flag, addr string, h http.Handler) (*http.Server, error) {
	srv := &http.Server{Handler: h, ReadHeaderTimeout: 5 * time.Second}
	if addr == "" {
		return srv, nil
	}
	ln, err := upgrader.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", flag, addr, err)
	}
	srv.Addr = ln.Addr().String()
	go func() { _ = srv.Serve(ln) }()
	return srv, nil
}
