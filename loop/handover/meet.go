//go:build unix

package handover

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/loopwheel/loopwheel/internal/inside"
	"github.com/loopwheel/loopwheel/loop/internal/sockets"
)

// This file is how processes meet: at a unix socket that the first one makes, and that moves to the
// next one like an address. No successor binds, renames or removes it.

const (
	version      = 2
	helloTimeout = 2 * time.Second
	maxHellos    = 8                      // at a time
	moreFiles    = 32                     // of a new process, for the handover and what the program opens
	filesOfLoop  = 10                     // as many as Server.Limits.MaxConns leaves
	askAgain     = 100 * time.Millisecond // of a process that is busy, or just ends
	meetName     = "the meeting socket"
)

// askPeer is peerOf; tests change it.
var askPeer = peerOf

// A greeting is the body of hello.
type greeting struct {
	Version int
	Service string
	Addrs   []string // of the Server
	Files   int      // descriptors that are free
}

// checkPath looks at the place of the meeting socket.
func checkPath(path string) error {
	if most := len(syscall.RawSockaddrUnix{}.Path) - 1; len(path) > most {
		return fmt.Errorf("handover: Config.Path %s has %d bytes, and the system takes at most %d", path, len(path), most)
	}
	dir, err := os.Stat(filepath.Dir(path))
	if err != nil {
		return fmt.Errorf("handover: Config.Path: %w", err)
	}
	if dir.Mode().Perm()&0o022 != 0 && dir.Mode()&fs.ModeSticky == 0 {
		return fmt.Errorf("handover: Config.Path: others may write the directory %s (mode %v): they could take over", filepath.Dir(path), dir.Mode())
	}
	at, err := os.Lstat(path)
	if err == nil && at.Mode()&fs.ModeSocket == 0 {
		return fmt.Errorf("handover: Config.Path: %s is there, and is not a socket", path)
	}
	return nil
}

// meet finds the process in charge, or opens the meeting socket, if there is none.
func (h *Handover) meet(ctx context.Context) error {
	if err := checkPath(h.cfg.Path); err != nil {
		return err
	}
	if _, _, err := peerOf(-1); errors.Is(err, errors.ErrUnsupported) {
		return fmt.Errorf("handover: this system does not tell whose a process is: %w", err)
	}
	for {
		nc, err := (&net.Dialer{Timeout: helloTimeout}).DialContext(ctx, "unix", h.cfg.Path)
		if err == nil {
			err = h.greet(ctx, nc.(*net.UnixConn))
			if !errors.Is(err, errAgain) {
				return err
			}
		} else if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED) {
			ln, e := sockets.System{}.Listen(ctx, net.ListenConfig{}, "unix", h.cfg.Path)
			if e == nil {
				h.door = newGate(ln)
				return os.Chmod(h.cfg.Path, 0o600)
			}
			if !errors.Is(e, syscall.EADDRINUSE) { // or another one was faster
				return fmt.Errorf("handover: Config.Path: %w", e)
			}
		} else if !errors.Is(err, syscall.EAGAIN) { // its queue is full
			return fmt.Errorf("handover: cannot reach the process in charge at %s: %w", h.cfg.Path, err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("handover: waiting for the process in charge: %w", ctx.Err())
		case <-time.After(askAgain):
		}
	}
}

var errAgain = errors.New("handover: it is busy, or ends")

// greet asks the process in charge for its sockets.
func (h *Handover) greet(ctx context.Context, nc *net.UnixConn) (err error) {
	l := newLine(nc)
	defer func() {
		if err != nil {
			l.hang()
		}
	}()
	stop := context.AfterFunc(ctx, func() { _ = l.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	pid, err := h.checkPeer(l)
	if err != nil {
		return err
	}
	body, err := json.Marshal(greeting{version, h.cfg.Service, h.addrs(), freeFiles()})
	if err == nil {
		err = l.write(message{kind: hello, n: os.Getpid(), body: body}, nil, time.Now().Add(h.cfg.Timeout))
	}
	if err != nil {
		return errAgain
	}
	t := &taking{h: h, line: l, taker: taker{phase: greets}, named: make(map[string]net.Listener)}
	defer func() {
		if err != nil {
			t.closeItems()
		}
	}()
	for first := true; ; first = false {
		m, err := l.read(maxMessage)
		pid = cmp.Or(m.n, pid) // the socket tells who was in charge when this process dialed
		t.report.Predecessor = pid
		switch {
		case ctx.Err() != nil:
			m.close()
			return fmt.Errorf("handover: waiting for the process in charge, %d: %w", pid, ctx.Err())
		case err != nil && first:
			return errAgain
		case err != nil:
			return fmt.Errorf("handover: the process in charge, %d, has hung up: %w", pid, err)
		case m.kind == busy:
			return errAgain
		case m.kind == refuse:
			return fmt.Errorf("handover: the process in charge, %d, refuses: %s", pid, m.body)
		case m.kind == welcome && m.file != nil:
			t.pipe = baton{r: m.file}
			h.from = t
			go func() {
				l.listen()
				h.lineEnded(t)
			}()
			return nil
		case m.kind == item && m.file != nil:
			if err := t.gotItem(m); err != nil {
				return err
			}
		default:
			m.close()
			return fmt.Errorf("handover: the process at %s does not speak version %d of this protocol", h.cfg.Path, version)
		}
	}
}

// checkPeer returns the number of the process at the other end, which must be of this one's user,
// or of root. It is 0 where the system does not tell: then what the process says of itself counts.
func (h *Handover) checkPeer(l *line) (pid int, err error) {
	var uid int
	if err = sockets.With(l.UnixConn, func(fd int) (err error) {
		uid, pid, err = askPeer(fd)
		return err
	}); err != nil {
		return 0, fmt.Errorf("handover: cannot tell whose the other process is: %w", err)
	}
	if uid != os.Getuid() && uid != 0 {
		return 0, fmt.Errorf("handover: the other process, %d, is of user %d, and not of %d", pid, uid, os.Getuid())
	}
	return pid, nil
}

// addrs returns the addresses of the Server, as its fields say.
func (h *Handover) addrs() (all []string) {
	if h.srv.Addr != "" {
		all = append(all, h.srv.Addr)
	}
	for _, ln := range h.srv.Listeners {
		if ln.Addr != "" {
			all = append(all, ln.Addr)
		}
	}
	return all
}

// freeFiles returns about how many descriptors this process can still open.
func freeFiles() int {
	var lim unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &lim) != nil || lim.Cur > 1<<30 {
		return 1 << 30
	}
	used, _ := os.ReadDir("/proc/self/fd")
	return int(lim.Cur) - len(used)
}

// answer greets the processes that come to the meeting socket.
func (h *Handover) answer() {
	places := make(chan struct{}, maxHellos)
	for {
		nc, err := h.door.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // no descriptors, say
			h.log(func() { h.srv.Logger.Error().Err(err).Msg("handover: cannot accept the next process; retrying") })
			h.freeReserve()
			time.Sleep(askAgain)
			continue
		}
		places <- struct{}{}
		go func() {
			defer func() { <-places }()
			l := newLine(nc.(*net.UnixConn))
			if err := h.hearHello(l); err != nil {
				h.dismiss(l, message{kind: refuse, body: []byte(err.Error())})
				h.log(func() { h.srv.Logger.Warn().Err(err).Msg("handover: a process was refused") })
			}
		}()
	}
}

// dismiss hangs up on a process that takes nothing over. answer may have spent the reserve on it.
func (h *Handover) dismiss(l *line, m message) {
	m.n = os.Getpid()
	_ = l.write(m, nil, time.Now().Add(helloTimeout))
	l.hang()
	select {
	case <-h.quit: // the reserve may be freed already
	default:
		h.fillReserve()
	}
}

// hearHello begins a handover, or says why not.
func (h *Handover) hearHello(l *line) error {
	pid, err := h.checkPeer(l)
	if err != nil {
		return err
	}
	_ = l.SetDeadline(time.Now().Add(helloTimeout))
	m, err := l.read(maxHello)
	m.close()
	pid = cmp.Or(pid, m.n)
	var g greeting
	switch {
	case err != nil || m.kind != hello || json.Unmarshal(m.body, &g) != nil:
		return fmt.Errorf("process %d has not said hello in %v, or not as this version does", pid, helloTimeout)
	case g.Version != version:
		return fmt.Errorf("it speaks version %d, and this process %d: restart without a handover", g.Version, version)
	case g.Service != h.cfg.Service:
		return fmt.Errorf("it is %q, and this is %q", g.Service, h.cfg.Service)
	}
	names, _ := h.items()
	conns, more := h.srv.Stats().Conns, moreFiles+filesOfLoop*len(h.srv.Loops())+len(names)
	if g.Files < conns+more {
		return fmt.Errorf("it has %d free descriptors, and needs %d for connections and %d more: raise its limit of open files", g.Files, conns, more)
	}
	bound := in.Bound(h.srv)
	common := len(bound) == 0
	for _, b := range bound {
		for _, a := range g.Addrs {
			common = common || a == b.Addr
		}
	}
	if !common {
		return fmt.Errorf("it serves none of this server's addresses, but %q", g.Addrs)
	}
	if !h.beginGiving(l, pid, g.Addrs) {
		h.dismiss(l, message{kind: busy})
	}
	return nil
}

// items returns what a successor is given before it says ready: "addr " and a Bound's Addr, which
// may be "name://tunnel"; "name " and a gate's key, of Handover.Listen.
func (h *Handover) items() (names []string, from []any) {
	names, from = []string{meetName}, []any{h.door.Listener}
	for _, b := range in.Bound(h.srv) {
		if names = append(names, "addr "+b.Addr); b.IsUDP() {
			from = append(from, b.Packets)
		} else {
			from = append(from, b.Listener)
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, g := range h.gates {
		names, from = append(names, "name "+g.key), append(from, g.Listener)
	}
	return names, from
}

// gotItem keeps a socket of the process in charge.
func (t *taking) gotItem(m message) error {
	name := string(m.body)
	b := inside.Bound{Addr: strings.TrimPrefix(name, "addr ")}
	var err error
	if b.IsUDP() {
		b.Packets, err = net.FileConn(m.file)
	} else {
		b.Listener, err = net.FileListener(m.file)
	}
	m.close()
	if err != nil {
		return fmt.Errorf("handover: a listener of process %d: %w", t.report.Predecessor, err)
	}
	switch ln := b.Listener; {
	case name == meetName:
		own := sockets.OwnFile(ln)
		setOwn(own, false)
		t.h.door = newGate(own)
	case len(name) > 5 && name[:5] == "addr ":
		t.bound = append(t.bound, b)
	case len(name) > 5 && name[:5] == "name ":
		own := sockets.OwnFile(ln)
		setOwn(own, false)
		t.named[name[5:]] = own
	default:
		_ = ln.Close()
	}
	return nil
}

// lineEnded frees the addresses if the process in charge has given the handover up before this one
// was ready, which may hang. If the other one has died, this one keeps them, and is in charge when it
// is ready.
func (h *Handover) lineEnded(t *taking) {
	left := t.pipe.isLeft()
	h.mu.Lock()
	defer h.mu.Unlock()
	if left || h.from != t || h.begun {
		return
	}
	t.givenUp = true
	t.closeItems()
	for _, g := range h.gates {
		_ = g.Close()
	}
	_ = h.door.Close()
}

// err returns why nothing can be taken over any more, or nil. h.mu is held.
func (t *taking) err() error {
	if t.givenUp {
		return fmt.Errorf("handover: process %d goes on, and gave up before this one was ready: its log says why", t.report.Predecessor)
	}
	return nil
}

// closeItems closes what nobody has asked for.
func (t *taking) closeItems() {
	for _, b := range t.bound {
		if b.Listener != nil {
			_ = b.Listener.Close()
		}
		if b.Packets != nil {
			_ = b.Packets.Close()
		}
	}
	for name, ln := range t.named {
		_ = ln.Close()
		delete(t.named, name)
	}
}
