// Command gateway connects devices, which speak a binary protocol, with programs that speak
// HTTP. Read codec.go (the wire), session.go (the connection of a device), outbox.go (messages
// for devices that are away), api.go (HTTP), and main.go (the process, TLS, its restart and its
// end).
package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/rs/zerolog"

	"github.com/loopwheel/loopwheel/handler"
	"github.com/loopwheel/loopwheel/loop/handover"
	"github.com/loopwheel/loopwheel/loop/loopmetrics"
)

var (
	addr       = flag.String("addr", "tcp://127.0.0.1:7000", "listen for devices on this `address`: tcp://host:port or unix://path")
	apiAddr    = flag.String("http", "127.0.0.1:7080", "serve the HTTP API on this `address`: whoever reaches it commands the devices")
	metrics    = flag.String("metrics", "", "serve a live page and Prometheus metrics on this `address`, such as 127.0.0.1:9090")
	tlsCert    = flag.String("tls-cert", "", "speak TLS with the certificate in this `file` (PEM)")
	tlsKey     = flag.String("tls-key", "", "and its key in this `file` (PEM)")
	open       = flag.Bool("open", false, "start without GATEWAY_KEY in the environment: then anybody can be any device")
	names      = flag.String("names", "", "`names`, such as gateway.example,api.example, under which requests may ask for the HTTP API, besides IP addresses and localhost")
	drain      = flag.Duration("drain", time.Second, "at the end serve devices for this `duration`, and send them away within as much again")
	meet       = flag.String("handover", "", "take over from the process that has this unix `socket`, and hand over by it; SIGHUP starts the next process")
	pidFile    = flag.String("pid", "", "write the number of the process in charge to this `file`")
	errStopped = errors.New("the server has stopped by itself")
)

func main() {
	flag.Parse()
	if err := checkFlags(); err != nil {
		fmt.Fprintln(os.Stderr, "gateway:", err)
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "gateway:", err)
		os.Exit(1)
	}
}

// checkFlags returns what is wrong with the flags.
func checkFlags() error {
	switch {
	case flag.NArg() > 0:
		return fmt.Errorf("there are arguments besides the flags: %q", flag.Args())
	case *drain < 0:
		return fmt.Errorf("-drain %v is negative", *drain)
	case *apiAddr == "":
		return errors.New("-http is empty: devices could not be reached")
	case os.Getenv("GATEWAY_KEY") == "" && !*open:
		return errors.New("GATEWAY_KEY is not set, so anybody could be any device: set it, or say -open")
	}
	return nil
}

// run serves until ctx is done or another process has taken over, and then ends everything in
// order.
func run(ctx context.Context) (err error) {
	log := zerolog.New(os.Stderr).With().Timestamp().Logger()
	g := &gateway{
		key:     []byte(os.Getenv("GATEWAY_KEY")), // a flag would show it to everybody here
		names:   strings.Split(*names, ","),
		devices: handler.NewRegistry[string](),
	}
	srv := g.server(*addr, *drain, log)
	if srv.TLS, err = tlsConfig(*tlsCert, *tlsKey); err != nil {
		return err
	}
	serving, sendAway := context.WithCancel(context.Background())
	defer sendAway()
	var before handover.Report // what the process before has handed over
	if *meet == "" {
		if err = srv.Start(serving); err != nil {
			err = fmt.Errorf("-addr %s: %w", *addr, err)
		}
	} else {
		before, err = handover.Take(serving, srv, handover.Config{Path: *meet})
	}
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- srv.Wait() }()

	api, err := serveHTTP(before, "http", *apiAddr, g.api())
	if err != nil {
		return err
	}
	live, err := loopmetrics.NewHandler(srv)
	if err != nil {
		return err
	}
	page, err := serveHTTP(before, "metrics", *metrics, live)
	if err != nil {
		return err
	}
	defer page.srv.Close() // last of all: it shows how the rest ends
	fmt.Printf("gateway: listening on %s://%s\n", srv.LocalAddr().Network(), srv.LocalAddr())
	fmt.Printf("gateway: commands on http://%s/devices\n", api.Addr())
	if *metrics != "" {
		fmt.Printf("gateway: live page on http://%s/, metrics on http://%[1]s/metrics\n", page.Addr())
	}
	var taken <-chan struct{} // nil: nobody takes over
	if *meet != "" {
		also := map[string]net.Listener{"http": api.Listener}
		if page.Listener != nil {
			also["metrics"] = page.Listener
		}
		offer, err := handover.Listen(srv, handover.Config{Path: *meet, Also: also})
		if err != nil {
			return err
		}
		defer offer.Close()
		taken = offer.Done()
		// SIGHUP starts the program's file again, which may be another version by now.
		handover.RestartOn(func(err error) { log.Error().Err(err).Msg("not replaced") }, syscall.SIGHUP)
	}
	if *pidFile != "" {
		if err := os.WriteFile(*pidFile, []byte(strconv.Itoa(os.Getpid())), 0o644); err != nil {
			return fmt.Errorf("-pid: %w", err)
		}
	}
	select {
	case <-taken:
		fmt.Println("gateway: another process has taken over")
	case err := <-ended:
		return cmp.Or(err, errStopped)
	case <-ctx.Done():
		fmt.Printf("gateway: draining %d connections; Ctrl-C again ends at once\n", srv.Stats().Conns)
	}

	// First the users of the devices: requests that wait for a device get its answer, and no new
	// ones come. Then the devices. After them what their handlers use, such as a database.
	patience, cancel := context.WithTimeout(context.Background(), commandTimeout+time.Second)
	defer cancel()
	_ = api.srv.Shutdown(patience)
	sendAway()
	if err := <-ended; err != nil {
		return err
	}
	fmt.Println("gateway: drained, bye")
	return nil
}

// tlsConfig returns what the flags ask for; nil means plain. A process that replaces this one reads
// the files anew.
func tlsConfig(certFile, keyFile string) (*tls.Config, error) {
	if certFile == "" && keyFile == "" {
		return nil, nil
	}
	pair, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		return nil, fmt.Errorf("-tls-cert and -tls-key: %w", err)
	}
	return &tls.Config{Certificates: []tls.Certificate{pair}}, nil
}

// A web is an HTTP server with its listener, which is nil if it has no address.
type web struct {
	net.Listener
	srv *http.Server
}

// serveHTTP serves h on the address that a flag has, or nowhere if that is empty: by the listener
// of the process before, if it had one.
func serveHTTP(before handover.Report, flag, addr string, h http.Handler) (w web, err error) {
	w.srv = &http.Server{Handler: h, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 2 * commandTimeout}
	if addr == "" {
		return w, nil
	}
	if w.Listener, err = before.Listen(flag, "tcp", addr); err != nil {
		return w, fmt.Errorf("-%s %s: %w", flag, addr, err)
	}
	go func() { _ = w.srv.Serve(w) }()
	return w, nil
}
