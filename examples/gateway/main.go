// Command gateway connects devices, which speak a binary protocol, with programs that speak
// HTTP. Read codec.go (the wire), session.go (the connection of a device), outbox.go (messages
// for devices that are away), api.go (HTTP), and main.go (the process, TLS, its restart and its
// end).
package main

import (
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/rs/zerolog"

	"github.com/loopwheel/loopwheel/handler"
	"github.com/loopwheel/loopwheel/loop/handover"
	"github.com/loopwheel/loopwheel/loop/loopmetrics"
)

var (
	addr    = flag.String("addr", "tcp://127.0.0.1:7000", "listen for devices on this `address`: tcp://host:port or unix://path")
	apiAddr = flag.String("http", "127.0.0.1:7080", "serve the HTTP API on this `address`: anyone who can reach it can command the devices")
	metrics = flag.String("metrics", "", "serve a live page and Prometheus metrics on this `address`, such as 127.0.0.1:9090")
	tlsCert = flag.String("tls-cert", "", "speak TLS with the certificate in this `file` (PEM)")
	tlsKey  = flag.String("tls-key", "", "read the key of the certificate from this `file` (PEM)")
	open    = flag.Bool("open", false, "start without GATEWAY_KEY in the environment: any client can then log in as any device")
	names   = flag.String("names", "", "host `names`, such as gateway.example,api.example, that the HTTP API accepts besides IP addresses and localhost")
	drain   = flag.Duration("drain", time.Second, "at shutdown, serve devices for this `duration`, then close their connections one by one over the same time again")
	meet    = flag.String("handover", "", "take over from the process with this unix `socket`, and hand over through it; SIGHUP starts the next process")
	pidFile = flag.String("pid", "", "write the PID of the active process to this `file`")
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
		return fmt.Errorf("unexpected arguments: %q", flag.Args())
	case *drain < 0:
		return fmt.Errorf("-drain %v is negative", *drain)
	case *addr == "":
		return errors.New("-addr is empty")
	case *apiAddr == "":
		return errors.New("-http is empty: devices could not be reached")
	case slices.Contains(hostNames(), ""):
		return fmt.Errorf("-names %q has an empty name", *names)
	case os.Getenv("GATEWAY_KEY") == "" && !*open:
		return errors.New("GATEWAY_KEY is not set, so anybody could be any device: set it, or say -open")
	}
	return nil
}

// hostNames returns the names of -names, in lower case.
func hostNames() []string {
	if *names == "" {
		return nil
	}
	return strings.Split(strings.ToLower(strings.ReplaceAll(*names, " ", "")), ",")
}

// run serves until ctx is done or another process has taken over, and then ends everything in
// order.
func run(ctx context.Context) (err error) {
	log := zerolog.New(os.Stderr).With().Timestamp().Logger()
	g := &gateway{
		key:     []byte(os.Getenv("GATEWAY_KEY")), // a flag would show it to everybody here
		names:   hostNames(),
		devices: handler.NewRegistry[string](),
	}
	srv := g.server(*addr, *drain, log)
	if srv.TLS, err = tlsConfig(*tlsCert, *tlsKey); err != nil {
		return err
	}
	api, page := newWeb(g.api()), newWeb(nil)
	h, err := handover.Open(ctx, srv, handover.Config{
		Path:    *meet,
		Service: "gateway",
		State:   g, // the messages that are kept
		PIDFile: *pidFile,
		Report: func(handover.Report) {
			fmt.Printf("gateway: listening on %s://%s\n", srv.LocalAddr().Network(), srv.LocalAddr())
			fmt.Printf("gateway: commands on http://%s/devices\n", api.Addr)
			if *metrics != "" {
				fmt.Printf("gateway: live page on http://%s/, metrics on http://%[1]s/metrics\n", page.Addr)
			}
		},
	})
	if err != nil {
		return fmt.Errorf("-handover %q, -pid %q: %w", *meet, *pidFile, err)
	}
	defer h.Close()

	// Start everything that can fail here: until Ready, the previous process keeps serving.
	if err := h.ServeHTTP("http", *apiAddr, api); err != nil {
		return fmt.Errorf("-http %s: %w", *apiAddr, err)
	}
	if *metrics != "" {
		live, err := loopmetrics.NewHandler(srv)
		if err != nil {
			return err
		}
		page.Handler = live
		if err := h.ServeHTTP("metrics", *metrics, page); err != nil {
			return fmt.Errorf("-metrics %s: %w", *metrics, err)
		}
	}
	if *meet != "" { // SIGHUP starts the program's file again, which may be another version by now
		h.RestartOn(syscall.SIGHUP)
	}
	go func() {
		select {
		case <-h.Retired():
			fmt.Println("gateway: another process has taken over")
		case <-ctx.Done():
			fmt.Printf("gateway: draining %d connections; Ctrl-C again ends at once\n", srv.Stats().Conns)
		}
	}()
	if _, err := h.Ready(ctx); err != nil {
		err = h.Run(ctx) // the same, when what has moved here has drained
		return fmt.Errorf("-addr %s: %w", *addr, err)
	}
	// After Run close what the handlers use, such as a database.
	if err := h.Run(ctx); err != nil {
		return err
	}
	fmt.Println("gateway: drained, bye")
	return nil
}

func newWeb(h http.Handler) *http.Server {
	return &http.Server{Handler: h, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 2 * commandTimeout}
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
