package handover

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/loopwheel/loopwheel/internal/defaults"
	"github.com/loopwheel/loopwheel/internal/inside"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/internal/journal"
	"github.com/loopwheel/loopwheel/loop/internal/sockets"
)

// keepFiles is how many descriptors are in reserve, so that a full server can be replaced.
const keepFiles = 8

// Defaults of the fields of a Config.
const (
	DefaultMaxState     = 256 << 20
	DefaultPatience     = time.Second
	DefaultTimeout      = 5 * time.Second
	DefaultStartTimeout = time.Minute
)

// Config configures Open. The zero Config is ready to use.
type Config struct {
	// Path is the path of the unix socket on which the processes meet. Only their user may have
	// write access to its directory. The first process creates the socket and hands it over like a
	// listener. "" means that this process takes over from no other process and hands over to none.
	// On systems other than Linux, macOS and FreeBSD, any other Path is an error.
	Path string

	// Service is the name of the program. A process with another name is refused. "" means the base
	// name of the executable file.
	Service string

	// State is the state that belongs to no connection, such as registries or messages for absent
	// peers. With a State, all connections move at one instant together with it, or none does. nil
	// means that there is no such state; connections then move in small batches.
	State State

	// MaxState is the maximum size of what State.Save writes, in bytes. 0 means DefaultMaxState,
	// 256 MiB.
	MaxState int64

	// Patience is how long the old process waits for work in progress: HTTP requests, jobs of
	// Offload, replies. Connections whose work is not done by then stay with it. 0 means
	// DefaultPatience, one second.
	Patience time.Duration

	// Timeout is how long connections may be in transit before the old process takes them back. A
	// process that is to end waits as long for a next process that is not ready yet, and after the
	// drain for HTTP requests in progress. 0 means DefaultTimeout, 5 s.
	Timeout time.Duration

	// StartTimeout is how long a new process may take from Open to Ready, and one that RestartOn
	// has started also from its start to Open. 0 means DefaultStartTimeout, one minute.
	StartTimeout time.Duration

	// PIDFile is the file that holds the process ID of the process in charge. At the end, Run and
	// Close remove the file if it still holds the ID of this process. If it is a link, or if its
	// directory does not permit that, they empty it instead. "" means none.
	PIDFile string

	// Report is called with the result of Ready, before Ready returns it, if there is no error. It
	// may be nil.
	Report func(Report)
}

// A State moves from one process to the next in one piece. Its methods are called one at a time, on
// goroutines that are not a loop's. A handover fails if Freeze, Save, Restore and the rehearsal
// together take longer than Config.Timeout; Thaw is then called when the method of the old process
// that is running has returned, and no other handover begins before that. A panic in one of them is
// not recovered.
type State interface {
	// Freeze is called first, in the old process. By then no input is read, except for UDP and
	// where SetBusy or a call needs it, and jobs have ended or Patience is over. Nothing may change
	// the state until Thaw. An error ends the handover, and Thaw follows.
	Freeze() error

	// Save writes the state. It is called in the old process.
	Save(w io.Writer) error

	// Thaw is called in the old process when the handover has failed. The state may change again.
	// After a successful handover nothing is called.
	Thaw()

	// Restore reads what Save has written. It is called in the new process, before Accept is called
	// for the first connection. An error ends the handover, and the old process goes on.
	Restore(r io.Reader) error
}

// Errors with which OnClose is called for connections that another process owns. Their peers notice
// nothing.
var (
	// ErrMoved means that the connection has moved to the next process.
	ErrMoved = errors.New("handover: the connection has moved to the next process")

	// ErrNotTaken means that the connection, or a copy of it, was passed to Accept to move here,
	// but the previous process keeps it.
	ErrNotTaken = errors.New("handover: the previous process keeps the connection")
)

func (c *Config) fill() (err error) {
	if c.MaxState < 0 || c.Patience < 0 || c.Timeout < 0 || c.StartTimeout < 0 {
		return errors.New("handover: a negative MaxState, Patience, Timeout or StartTimeout; 0 means the default")
	}
	err = cmp.Or(defaults.Unit("handover: Config.Patience", c.Patience), defaults.Unit("handover: Config.Timeout", c.Timeout),
		defaults.Unit("handover: Config.StartTimeout", c.StartTimeout))
	if err != nil {
		return err
	}
	for _, path := range []*string{&c.Path, &c.PIDFile} {
		if *path == "" {
			continue
		}
		if *path, err = filepath.Abs(*path); err != nil { // the program may change its directory
			return fmt.Errorf("handover: %w", err)
		}
	}
	c.MaxState = cmp.Or(c.MaxState, DefaultMaxState)
	c.Patience, c.Timeout = cmp.Or(c.Patience, DefaultPatience), cmp.Or(c.Timeout, DefaultTimeout)
	c.StartTimeout = cmp.Or(c.StartTimeout, DefaultStartTimeout)
	c.Service = cmp.Or(c.Service, filepath.Base(os.Args[0]))
	return nil
}

// A Report describes what Ready has done. The zero Report is that of a process without a
// predecessor.
type Report struct {
	Predecessor int            // the process ID of the previous process in charge; 0 if there is none
	Died        bool           // it died during the handover, with what it still owned
	Moved       int            // connections that have moved; the old process logs the same number
	Stayed      map[string]int // connections that have not moved, by reason
	Lost        int            // connections that Accept refused after the old process had died
	Longest     time.Duration  // longest pause of a connection: last turn there to first turn here
}

// in is what package loop has for this package.
var in = inside.Take[inside.Handover[*loop.Server]]()

// A Handover is this process's side of a handover. It may first be that of the new process, and
// later that of the old one.
type Handover struct {
	cfg Config
	srv *loop.Server

	mu      sync.Mutex
	from    *taking // the process before; nil: there is none, or it has ended
	begun   bool    // by Ready
	door    *gate   // the meeting socket
	gates   []*gate
	webs    []*web
	serving sync.WaitGroup
	giving  *giving // the handover under way; nil: there is none

	readyOnce sync.Once
	report    Report // what Ready returns
	readyErr  error

	reserve []*os.File
	child   child
	journal journal.Journal

	retired chan struct{} // closed when the next process is in charge
	quit    chan struct{} // closed when the program is to end
	once    sync.Once

	closed    chan struct{} // by Close
	closeOnce sync.Once
}

// Open finds the process in charge through cfg.Path and gets copies of its sockets. If there is
// none, Open creates the socket through which the next process finds this one. If another handover
// is in progress, Open waits for its end. If the process in charge is to end and still accepts,
// Open waits until its listeners are closed. The end of ctx ends the wait. srv must not have been
// started: Ready starts it. Between Open and Ready the program starts everything that it needs and
// that can fail. The old process serves until Ready.
//
// If the old process gives the handover up before Ready, this one closes its copies of the sockets,
// and Ready fails. If Open returns an error, it has had no effect. Otherwise call Close at the end.
func Open(ctx context.Context, srv *loop.Server, cfg Config) (*Handover, error) {
	if err := cfg.fill(); err != nil {
		return nil, err
	}
	if cfg.PIDFile != "" {
		if err := writePID(cfg.PIDFile, false); err != nil {
			return nil, fmt.Errorf("handover: Config.PIDFile: %w", err)
		}
	}
	h := &Handover{cfg: cfg, srv: srv, retired: make(chan struct{}), quit: make(chan struct{}), closed: make(chan struct{})}
	if cfg.Path != "" {
		if err := h.meet(ctx); err != nil {
			h.closeDoors()
			return nil, err
		}
	}
	bound := []inside.Bound{} // not nil: Start is to wait for addresses, even if no process hands over
	if h.from != nil {
		bound = h.from.bound
	}
	in.Inherit(srv, bound)
	h.fillReserve()
	return h, nil
}

// Ready starts the Server and takes over from the old process. If there is none, the Server just
// serves. Ready returns when everything has moved that can. If ctx ends before that, or something
// fails, the old process goes on: with all of its connections if this process has not accepted any
// yet, otherwise with those that have not moved. Ready then returns an error, and the program must
// end: Run drains what this process has accepted, and Close cuts it. If ctx ends when everything
// has moved, there is no error. Further calls return the same result.
func (h *Handover) Ready(ctx context.Context) (Report, error) {
	h.readyOnce.Do(func() { h.report, h.readyErr = h.becomeReady(ctx) })
	return h.report, h.readyErr
}

func (h *Handover) becomeReady(ctx context.Context) (r Report, err error) {
	h.mu.Lock()
	from := h.from
	if h.begun = true; from != nil {
		err = from.err()
	}
	h.mu.Unlock()
	if err != nil {
		h.giveBack()
		return r, err
	}
	if err = h.srv.Start(context.Background()); err != nil {
		if from == nil && h.door != nil && errors.Is(err, syscall.EADDRINUSE) {
			err = fmt.Errorf("%w; no process was found at Config.Path %s, which may have been deleted", err, h.cfg.Path)
		}
		h.giveBack()
		return r, err
	}
	select {
	case <-h.quit: // by Close, which may have found no Server to close
		h.giveBack()
		return r, errors.Join(errors.New("handover: Close was called"), h.srv.Close(), h.srv.Wait())
	default:
	}
	if from == nil {
		h.own(true)
		h.acceptNewcomers(true)
		h.announce()
	} else {
		r, err = from.take(ctx)
	}
	h.mu.Lock()
	h.from = nil
	h.mu.Unlock()
	if err == nil {
		if h.door != nil {
			go h.answer()
		}
		if h.cfg.Report != nil {
			h.cfg.Report(r)
		}
	}
	return r, err
}

// announce tells the world which process is in charge now.
func (h *Handover) announce() {
	if h.cfg.PIDFile != "" {
		if err := writePID(h.cfg.PIDFile, true); err != nil { // it could be written in Open
			h.log(func() { h.srv.Logger.Error().Err(err).Msg("handover: the PID file was not written") })
		}
	}
	if err := notify(); err != nil {
		h.log(func() { h.srv.Logger.Error().Err(err).Msg("handover: cannot notify the service manager") })
	}
}

// log writes a line without waiting for it: a log that blocks holds up no handover and no end.
func (h *Handover) log(line func()) { h.journal.Add(line) }

// own makes the files of unix sockets, and what Dialer.MoveAs names, this process's.
func (h *Handover) own(on bool) {
	in.SetInCharge(h.srv, on)
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, g := range h.gates {
		setOwn(g.Listener, on)
	}
	if h.door != nil {
		setOwn(h.door.Listener, on)
	}
}

// acceptNewcomers makes all listeners accept, or none.
func (h *Handover) acceptNewcomers(on bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, w := range h.webs {
		w.SetKeepAlivesEnabled(on) // which closes idle connections
	}
	for _, g := range h.gates {
		g.set(on)
	}
	if h.door != nil {
		if h.door.set(on); on { // SO_PEERCRED names the process that has called listen last
			_ = sockets.SetBacklog(h.door.Listener, 128)
		}
	}
	in.AcceptNewcomers(h.srv, on, h.cfg.Timeout/2)
}

// closeDoors closes what accepts besides the Server.
func (h *Handover) closeDoors() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, g := range h.gates {
		_ = g.Close()
	}
	if h.door != nil {
		_ = h.door.Close()
	}
}

// setOwn says whether a listener of a unix socket removes its file in the end.
func setOwn(ln net.Listener, on bool) {
	if l, ok := ln.(interface{ Own(on bool) }); ok {
		l.Own(on)
	}
}

// Run calls Ready, unless it was called already, and serves until the next process has taken over
// or ctx is done. Then it drains the remaining connections, closes everything, and returns what
// Server.Wait returns. Like Wait it gives up on callbacks and jobs that do not return.
//
// If ctx ends while a next process is between Open and Ready, that has Config.Timeout to reach
// Ready. Then this process gives the handover up and drains. If ctx ends later in a handover, the
// handover goes on, and this process drains only the connections that it keeps.
func (h *Handover) Run(ctx context.Context) error {
	if _, err := h.Ready(ctx); err != nil {
		return errors.Join(err, h.end())
	}
	ended := make(chan struct{})
	go func() {
		_ = h.srv.Wait()
		close(ended)
	}()
	select {
	case <-h.retired:
	case <-ended:
	case <-ctx.Done():
	}
	return h.end()
}

// Retired returns a channel that is closed when the next process is in charge.
func (h *Handover) Retired() <-chan struct{} { return h.retired }

// end drains.
func (h *Handover) end() error {
	defer h.journal.Wait()
	h.once.Do(func() { close(h.quit) }) // no handover begins any more: see beginGiving
	h.mu.Lock()
	g := h.giving
	h.mu.Unlock()
	if g != nil {
		<-g.done // the handover empties this process; if it fails the rest drains
	}
	h.endChild()
	retired := isClosed(h.retired)
	if h.srv.Addrs() == nil { // it was not started
		h.closeDoors()
		h.serving.Wait()
		return nil
	}
	began, patience := time.Now(), h.cfg.Timeout
	if retired || !h.srv.Drain.KeepAccepting {
		h.stopAccepting()
	} else {
		time.AfterFunc(h.srv.Drain.Delay, h.stopAccepting)
	}
	over, cancel := context.WithCancel(context.Background())
	cancel()
	_ = h.srv.Shutdown(over) // it begins the drain, and does not wait for jobs without limit
	err := h.srv.Wait()
	h.closeDoors()
	if retired { // nothing waits for this process
		patience = max(patience, time.Until(began.Add(h.srv.Drain.Timeout)))
	}
	requests, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for _, w := range h.webs {
		if w.Shutdown(requests) != nil {
			_ = w.Server.Close()
		}
	}
	h.serving.Wait()
	h.removePID()
	return err
}

// stopAccepting closes all listeners, and the meeting socket last: until then a process that starts
// waits, and then it finds the addresses free.
func (h *Handover) stopAccepting() {
	in.StopAccepting(h.srv)
	h.closeDoors()
}

func isClosed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

// Close closes the Server at once, unless Run has ended it already, and everything else. If Ready
// was not called, the old process goes on. A next process that RestartOn has started, and that has
// not taken over, is killed. Close always returns nil.
func (h *Handover) Close() error {
	h.once.Do(func() { close(h.quit) })
	h.giveBack()
	h.mu.Lock()
	g := h.giving
	h.mu.Unlock()
	if g != nil { // the next process may be in charge, or find that the line has ended, and then be
		h.own(false)
	}
	if h.srv.Addrs() != nil {
		_ = h.srv.Close()
		_ = h.srv.Wait()
	}
	if g != nil {
		g.hang()
		<-g.done
		h.own(false) // again: to this process the handover has failed
	}
	h.endChild()
	h.closeOnce.Do(func() { close(h.closed) })
	h.closeDoors()
	for _, w := range h.webs {
		_ = w.Server.Close()
	}
	h.serving.Wait()
	if g == nil { // or the next process may be writing it
		h.removePID()
	}
	h.freeReserve()
	h.journal.Wait()
	return nil
}

// giveBack ends the attempt to take over, unless that has ended.
func (h *Handover) giveBack() {
	h.mu.Lock()
	from := h.from
	h.from = nil
	h.mu.Unlock()
	if from != nil {
		from.giveUp()
	}
}

// fillReserve keeps some descriptors in reserve.
func (h *Handover) fillReserve() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for len(h.reserve) < keepFiles {
		f, err := os.Open(os.DevNull)
		if err != nil {
			return
		}
		h.reserve = append(h.reserve, f)
	}
}

// freeReserve makes room for the descriptors of a handover.
func (h *Handover) freeReserve() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, f := range h.reserve {
		_ = f.Close()
	}
	h.reserve = nil
}

// removePID removes the PID file, unless another process is in charge.
func (h *Handover) removePID() {
	path := h.cfg.PIDFile
	text, err := os.ReadFile(path)
	if path == "" || isClosed(h.retired) || err != nil || string(text) != pidText() {
		return
	}
	if at, err := os.Lstat(path); err == nil && at.Mode().IsRegular() && os.Remove(path) == nil {
		return
	}
	if err := os.Truncate(path, 0); err != nil {
		h.log(func() { h.srv.Logger.Error().Err(err).Msg("handover: the PID file was not removed") })
	}
}

// pidText is what the PID file of this process holds.
func pidText() string { return strconv.Itoa(os.Getpid()) + "\n" }

// writePID writes the file, in one step if its directory allows that, so that a full disk leaves the
// old one. Without keep it only finds out whether it could.
func writePID(path string, keep bool) error {
	if to, err := filepath.EvalSymlinks(path); err == nil {
		path = to // a link stays one
	}
	if i, err := os.Stat(path); err == nil && !i.Mode().IsRegular() {
		return fmt.Errorf("%s is not a regular file", path)
	}
	text := []byte(pidText())
	beside := fmt.Sprintf("%s.%x", path, rand.Uint32())
	err := os.WriteFile(beside, text, 0o644)
	if errors.Is(err, fs.ErrPermission) { // that of the directory; the file may be this user's
		f, openErr := os.OpenFile(path, os.O_WRONLY, 0)
		if openErr != nil {
			return err
		}
		if keep {
			_, err = f.Write(text)
			err = errors.Join(err, f.Truncate(int64(len(text))))
		} else {
			err = nil
		}
		return errors.Join(err, f.Close())
	}
	if err == nil && keep {
		err = os.Rename(beside, path)
	}
	if err != nil || !keep {
		_ = os.Remove(beside)
	}
	return err
}
