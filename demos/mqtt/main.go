// Command mqtt is an MQTT broker for the versions 3.1.1 and 5.0, over TCP, TLS and WebSocket, on the
// loops of package loop. Read broker.go (what it allows), client.go (a connection and its packets),
// session.go (what is kept for a client), shard.go (the part of a loop, and how parts work together
// without locks), group.go (shared subscriptions), tree.go (topics).
package main

import (
	"bufio"
	"context"
	"crypto/subtle"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"math"
	"net/http"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/rs/zerolog"

	"github.com/loopwheel/loopwheel/codec/mqtt"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/handover"
	"github.com/loopwheel/loopwheel/loop/loopmetrics"
)

var (
	addr      = flag.String("addr", "tcp://127.0.0.1:1883", "listen on this `address`: tcp://host:port or unix://path")
	tlsAddr   = flag.String("tls", "", "listen for TLS on this `address`, such as tcp://127.0.0.1:8883; needs -cert and -key")
	wsAddr    = flag.String("ws", "", "listen for WebSocket on this `address`, such as tcp://127.0.0.1:8080")
	certFile  = flag.String("cert", "", "the certificate of -tls, a `file` (PEM)")
	keyFile   = flag.String("key", "", "and its key, a `file` (PEM)")
	users     = flag.String("users", "", "only users in this `file` may connect: a line name:password each")
	deny      = flag.String("deny", "", "no client may use these `topics` and filters, separated by commas and compared as text")
	keepAlive = flag.Uint("max-keepalive", 0, "the longest keep alive of clients of version 5, in `seconds`; 0: any")
	inflight  = flag.Uint("max-inflight", 0, "the `number` of messages of QoS 1 and 2 under way in each direction of a client; 0: 100")
	aliases   = flag.Uint("max-alias", 0, "the `number` of topic aliases of a client in each direction; 0: 16")
	packet    = flag.Uint("max-packet", 0, "the longest packet in `bytes`; 0: 256 KiB")
	sessions  = flag.Uint("max-session", 0, "how many `seconds` a session outlives its connection at most; 4294967295: no limit; 0: a week")
	memory    = flag.Uint("max-memory", 0, "how many `MiB` sessions, subscriptions, retained and waiting messages may take; 0: 1024")
	metrics   = flag.String("metrics", "", "serve a live page and Prometheus metrics on this `address`, such as 127.0.0.1:9090")
	loops     = flag.Int("loops", 0, "the `number` of loops; 0: one less than the processors that Go uses")
	stateFile = flag.String("state", "", "keep sessions and retained messages in this `file` from a regular end to the next start")
	meet      = flag.String("handover", "", "take over from the process that has this unix `socket`, and hand over by it; SIGHUP starts the next process")
	engine    = flag.String("engine", "", "gnet, epoll or net; empty: the system's default")
)

func main() {
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "mqtt:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	if flag.NArg() > 0 {
		return fmt.Errorf("there are arguments besides the flags: %q", flag.Args())
	}
	if *tlsAddr == "" && *certFile+*keyFile != "" {
		return errors.New("-cert and -key are for -tls, which is not given")
	}
	if *addr+*tlsAddr+*wsAddr == "" {
		return errors.New("-addr is empty, and neither -tls nor -ws is given")
	}
	if *loops < 0 || *loops > 1000 {
		return fmt.Errorf("-loops %d is not from 0 to 1000", *loops)
	}
	for _, f := range []struct {
		name       string
		value, max uint
	}{{"keepalive", *keepAlive, 65535}, {"inflight", *inflight, 65535}, {"alias", *aliases, 65535}, {"packet", *packet, anyPacket}, {"session", *sessions, never}, {"memory", *memory, math.MaxInt >> 20}} {
		if f.value > f.max {
			return fmt.Errorf("-max-%s %d is above %d", f.name, f.value, f.max)
		}
	}
	cfg := Config{MaxKeepAlive: uint16(*keepAlive), MaxInflight: int(*inflight), MaxAlias: int(*aliases), MaxPacket: int(*packet), MaxSession: uint32(*sessions), MaxMemory: int(*memory) << 20}
	if *deny != "" {
		cfg.Deny = strings.Split(*deny, ",")
		for _, filter := range cfg.Deny {
			if err := mqtt.CheckFilter([]byte(filter)); err != nil {
				return fmt.Errorf("-deny %q: %w", filter, err)
			}
		}
	}
	if *users != "" {
		known, err := readUsers(*users)
		if err != nil {
			return fmt.Errorf("-users: %w", err)
		}
		cfg.Auth = known.auth
	}
	// While loops have all of Go's processors in system calls, its monitor does not rest, which takes
	// a tenth of the CPU.
	runtime.GOMAXPROCS(max(*loops+1, runtime.GOMAXPROCS(0)))
	srv := &loop.Server{Addr: *addr, NumLoops: *loops, Logger: zerolog.New(os.Stderr).Level(zerolog.WarnLevel).With().Timestamp().Logger()}
	switch *engine {
	case "", "gnet", "epoll", "net":
		srv.Engine = map[string]loop.Engine{"": srv.Engine, "gnet": loop.EngineGnet, "epoll": loop.EngineEpoll, "net": loop.EngineNet}[*engine]
	default:
		return fmt.Errorf("-engine %q is not gnet, epoll or net", *engine)
	}
	b := newBroker(cfg, srv)
	if *tlsAddr != "" {
		cert, err := tls.LoadX509KeyPair(*certFile, *keyFile)
		if err != nil {
			return fmt.Errorf("-tls needs -cert and -key: %w", err)
		}
		srv.Listeners = append(srv.Listeners, loop.Listener{Addr: *tlsAddr, TLS: &tls.Config{Certificates: []tls.Certificate{cert}}})
	}
	if *wsAddr != "" {
		srv.Listeners = append(srv.Listeners, loop.Listener{Addr: *wsAddr, Codec: b.webSocket()})
	}
	h, err := handover.Open(ctx, srv, handover.Config{Path: *meet, Service: "mqtt", State: b})
	if err != nil {
		return fmt.Errorf("-handover %s: %w", *meet, err)
	}
	defer h.Close()
	if *metrics != "" {
		live, err := loopmetrics.NewHandler(srv)
		if err != nil {
			return err
		}
		if err := h.ServeHTTP("metrics", *metrics, &http.Server{Handler: live, ReadHeaderTimeout: 10 * time.Second}); err != nil {
			return fmt.Errorf("-metrics: %w", err)
		}
	}
	if *meet != "" {
		h.RestartOn(syscall.SIGHUP)
	}
	if err := b.run(ctx, h, *stateFile); err != nil {
		return fmt.Errorf("with -addr %s, -tls %q, -ws %q, -state %q and -handover %q: %w", *addr, *tlsAddr, *wsAddr, *stateFile, *meet, err)
	}
	return nil
}

// userList has the passwords of users.
type userList map[string]string

func readUsers(file string) (userList, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	known := userList{}
	for lines := bufio.NewScanner(f); ; {
		if !lines.Scan() {
			return known, lines.Err()
		}
		name, password, ok := strings.Cut(lines.Text(), ":")
		if !ok {
			return nil, fmt.Errorf("line %d is not name:password", len(known)+1)
		}
		known[name] = password
	}
}

func (u userList) auth(_ context.Context, login Login) mqtt.ReasonCode {
	password, known := u[login.Username]
	if login.HasUsername && known && subtle.ConstantTimeCompare([]byte(password), login.Password) == 1 {
		return mqtt.Success
	}
	return mqtt.NotAuthorized
}
