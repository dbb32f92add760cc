package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/cloudflare/tableflip"
	"github.com/rs/zerolog"
)

// A restarter replaces the program while it runs, on SIGHUP: it starts the program's file anew,
// which may be another version by now, and hands over the listening sockets. When the new process
// is ready, the old one stops accepting, serves its connections for a while and drains. No
// connection is refused meanwhile: those that nobody has accepted yet wait in the sockets' queues,
// which both processes share.
type restarter struct {
	*tableflip.Upgrader
}

// newRestarter may be called once in a process. pidFile is where the process that is in charge
// writes its number; "" means nowhere.
func newRestarter(pidFile string) (*restarter, error) {
	upg, err := tableflip.New(tableflip.Options{PIDFile: pidFile})
	return &restarter{upg}, err
}

// listen returns the socket of the process before this one, or a new one. addr is as -addr; for one
// that makes no sense it returns nil, as the server finds the words for that.
func (r *restarter) listen(addr string) (net.Listener, error) {
	network, address, _ := strings.Cut(addr, "://")
	switch network {
	case "tcp", "tcp4", "tcp6":
		if _, _, err := net.SplitHostPort(address); err != nil {
			return nil, nil
		}
	case "unix":
		if address == "" {
			return nil, nil
		}
	default:
		return nil, nil
	}
	var cause error // tableflip tells only its text
	ln, err := r.ListenWithCallback(network, address, func(network, address string) (ln net.Listener, err error) {
		ln, cause = listen(network, address)
		return ln, cause
	})
	if cause != nil {
		return nil, cause
	}
	return ln, err
}

// listen replaces a unix socket that a dead process has left behind, as a Server does with its
// Addr.
func listen(network, address string) (net.Listener, error) {
	if network == "unix" && !strings.HasPrefix(address, "@") {
		defer lock(address)()
		if err := removeStale(address); err != nil {
			return nil, err
		}
	}
	return net.Listen(network, address)
}

// removeStale removes a socket that refuses connections. What is not a socket stays.
func removeStale(path string) error {
	switch info, err := os.Lstat(path); {
	case err != nil:
		return nil // there is none, or listening will tell
	case info.Mode()&os.ModeSocket == 0:
		return fmt.Errorf("%s is there, and is not a socket: remove it, or choose another path", path)
	}
	c, err := net.DialTimeout("unix", path, time.Second)
	if err == nil {
		_ = c.Close() // somebody listens: so listening fails
	} else if errors.Is(err, syscall.ECONNREFUSED) {
		_ = os.Remove(path)
	}
	return nil
}

// watch restarts on SIGHUP. The context that it returns ends with ctx, or when a new process has
// taken over.
func (r *restarter) watch(ctx context.Context, log zerolog.Logger) context.Context {
	ctx, cancel := context.WithCancel(ctx)
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	go func() {
		for range hangups {
			if err := r.Upgrade(); err != nil {
				log.Error().Err(err).Msg("not restarted")
			}
		}
	}()
	go func() {
		defer cancel()
		select {
		case <-ctx.Done():
			r.Stop() // and a unix socket's file goes
			<-r.Exit()
		case <-r.Exit():
			log.Info().Msg("another process has taken over")
		}
	}()
	return ctx
}
