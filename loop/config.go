package loop

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/loop/internal/procs"
)

// Defaults of Server's fields.
const (
	DefaultMaxOutbound     = 1 << 20                // Server.MaxOutbound, bytes
	DefaultMaxMailbox      = 65536                  // Server.MaxMailbox, functions
	DefaultCloseTimeout    = 5 * time.Second        // Server.CloseTimeout
	DefaultDrainTimeout    = 30 * time.Second       // Server.DrainTimeout
	DefaultTurnBudget      = time.Millisecond       // Server.TurnBudget
	DefaultMaxOffload      = 256                    // Server.MaxOffload, goroutines
	DefaultMaxOffloadQueue = 16384                  // Server.MaxOffloadQueue, works
	DefaultBlockedAfter    = 100 * time.Millisecond // Server.BlockedAfter
)

// config is a Server's fields with the defaults filled in.
type config struct {
	loops           int
	maxConns        int
	maxOutbound     int
	maxMailbox      int
	closeTimeout    time.Duration
	drainTimeout    time.Duration
	turnBudget      time.Duration
	blockedAfter    time.Duration
	maxOffload      int
	maxOffloadQueue int
	listeners       []*listener
}

// validate checks all fields and names the one that is wrong.
func (s *Server) validate() (config, error) {
	cfg := config{
		loops:           cmp.Or(s.NumLoops, procs.Available()),
		maxConns:        s.MaxConns,
		maxOutbound:     cmp.Or(s.MaxOutbound, DefaultMaxOutbound),
		maxMailbox:      cmp.Or(s.MaxMailbox, DefaultMaxMailbox),
		closeTimeout:    cmp.Or(s.CloseTimeout, DefaultCloseTimeout),
		drainTimeout:    cmp.Or(s.DrainTimeout, DefaultDrainTimeout),
		turnBudget:      cmp.Or(s.TurnBudget, DefaultTurnBudget),
		blockedAfter:    cmp.Or(s.BlockedAfter, DefaultBlockedAfter),
		maxOffload:      cmp.Or(s.MaxOffload, DefaultMaxOffload),
		maxOffloadQueue: cmp.Or(s.MaxOffloadQueue, DefaultMaxOffloadQueue),
	}
	if err := s.validateNumbers(); err != nil {
		return cfg, err
	}
	main := Listener{Addr: s.Addr, Codec: s.Codec, Accept: s.Accept, IdleTimeout: s.IdleTimeout}
	for i, l := range append([]Listener{main}, s.Listeners...) {
		field := "Server"
		if i > 0 {
			field = fmt.Sprintf("Server.Listeners[%d]", i-1)
		}
		ln, err := s.validateListener(field, l)
		if err != nil {
			return cfg, err
		}
		cfg.listeners = append(cfg.listeners, ln)
	}
	return cfg, nil
}

func (s *Server) validateNumbers() error {
	for _, f := range []struct {
		name  string
		value int64
		zero  string
	}{
		{"IdleTimeout", int64(s.IdleTimeout), "never"},
		{"IdleJitter", int64(s.IdleJitter), "none"},
		{"NumLoops", int64(s.NumLoops), "GOMAXPROCS"},
		{"MaxConns", int64(s.MaxConns), "from the limit of open files"},
		{"MaxConnsPerIP", int64(s.MaxConnsPerIP), "no limit"},
		{"AcceptRate", int64(s.AcceptRate), "no limit"},
		{"FirstByteTimeout", int64(s.FirstByteTimeout), "never"},
		{"FrameTimeout", int64(s.FrameTimeout), "no limit"},
		{"DrainWindow", int64(s.DrainWindow), "at once"},
		{"MaxOutbound", int64(s.MaxOutbound), "DefaultMaxOutbound"},
		{"MaxMailbox", int64(s.MaxMailbox), "DefaultMaxMailbox"},
		{"CloseTimeout", int64(s.CloseTimeout), "DefaultCloseTimeout"},
		{"DrainTimeout", int64(s.DrainTimeout), "DefaultDrainTimeout"},
		{"TurnBudget", int64(s.TurnBudget), "DefaultTurnBudget"},
		{"MaxOffload", int64(s.MaxOffload), "DefaultMaxOffload"},
		{"MaxOffloadQueue", int64(s.MaxOffloadQueue), "DefaultMaxOffloadQueue"},
		{"BlockedAfter", int64(s.BlockedAfter), "DefaultBlockedAfter"},
	} {
		if f.value < 0 {
			return fmt.Errorf("loop: Server.%s is negative; 0 means %s", f.name, f.zero)
		}
	}
	if s.IdleJitter > 0 && s.IdleTimeout == 0 && !slices.ContainsFunc(s.Listeners, func(l Listener) bool { return l.IdleTimeout > 0 }) {
		return errors.New("loop: Server.IdleJitter needs an IdleTimeout that it can spread")
	}
	if window, timeout := s.DrainWindow, cmp.Or(s.DrainTimeout, DefaultDrainTimeout); window >= timeout {
		return fmt.Errorf("loop: Server.DrainWindow %v must be shorter than DrainTimeout %v", window, timeout)
	}
	return nil
}

func (s *Server) validateListener(field string, l Listener) (*listener, error) {
	ln := &listener{
		server:      s,
		codec:       cmp.Or(l.Codec, s.Codec),
		accept:      l.Accept,
		idleTimeout: cmp.Or(l.IdleTimeout, s.IdleTimeout),
	}
	if ln.accept == nil {
		ln.accept = s.Accept
	}
	if ln.accept == nil {
		return nil, fmt.Errorf("loop: %s.Accept is nil: it must return the Handler of each connection", field)
	}
	if l.IdleTimeout < 0 {
		return nil, fmt.Errorf("loop: %s.IdleTimeout is negative; 0 means Server.IdleTimeout", field)
	}
	var err error
	if ln.codec, err = codec.Compile(ln.codec); err != nil {
		return nil, fmt.Errorf("loop: %s.Codec: %w", field, err)
	}
	if ln.network, ln.address, err = splitAddr(l.Addr); err != nil {
		return nil, fmt.Errorf("loop: %s.Addr %q: %w", field, l.Addr, err)
	}
	ln.field = field + ".Addr"
	return ln, nil
}

// splitAddr takes "tcp://host:port" or "unix://path" apart.
func splitAddr(addr string) (network, address string, err error) {
	network, address, ok := strings.Cut(addr, "://")
	if !ok {
		return "", "", errors.New(`no scheme: want something like "tcp://:7000" or "unix:///run/x.sock"`)
	}
	switch network {
	case "tcp", "tcp4", "tcp6":
		if _, _, err := net.SplitHostPort(address); err != nil {
			return "", "", fmt.Errorf(`want "%s://host:port": %w`, network, err)
		}
	case "unix":
		if address == "" {
			return "", "", errors.New("the path of the socket is missing")
		}
		if strings.ContainsRune(address, 0) {
			return "", "", errors.New("the path has a NUL byte (an abstract name begins with @ in its place)")
		}
		if most := len(syscall.RawSockaddrUnix{}.Path) - 1; len(address) > most {
			return "", "", fmt.Errorf("the path has %d bytes, and the system takes at most %d", len(address), most)
		}
	default:
		return "", "", fmt.Errorf("unknown scheme %q: want tcp, tcp4, tcp6 or unix", network)
	}
	return network, address, nil
}

// isFile reports whether something else than a socket is where a unix socket is to be.
func isFile(network, address string) bool {
	if network != "unix" {
		return false
	}
	info, err := os.Lstat(address)
	return err == nil && info.Mode()&os.ModeSocket == 0
}
