package handover

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"
)

// Defaults of a Config.
const (
	DefaultMaxState     = 256 << 20
	DefaultPatience     = time.Second
	DefaultTimeout      = 5 * time.Second
	DefaultStartTimeout = time.Minute
)

// Config holds the settings of Open. The zero value is usable.
type Config struct {
	// Path is the unix socket by which processes find each other, in a directory that only their
	// user may write. The first process creates it, and hands it over like an address. "" means no
	// handover, neither from another process nor to one. On systems other than unix, any other Path
	// is an error.
	Path string

	// Service names the program: processes with another name are refused. "" means the base name of
	// its file.
	Service string

	// State holds what belongs to no connection: registries, messages for absent peers. With a
	// State all connections move at one instant, together with it, or none does. nil means none;
	// connections then move in small batches.
	State State

	// MaxState limits what State.Save may write, in bytes. 0 means DefaultMaxState, 256 MiB.
	MaxState int64

	// Patience is how long pending work may take: HTTP requests, Offload jobs, replies. What is not
	// done by then stays with the old process. 0 means DefaultPatience, one second.
	Patience time.Duration

	// Timeout is how long the new process may take to accept connections before the old one takes
	// them back. 0 means DefaultTimeout, 5 s.
	Timeout time.Duration

	// StartTimeout is how long a new process may take from its start, or from Open, to Ready. 0
	// means DefaultStartTimeout, one minute.
	StartTimeout time.Duration

	// PIDFile is a file that holds the PID of the active process. "" means none.
	PIDFile string

	// Report, if not nil, is called when Ready has ended, with its result.
	Report func(Report)
}

// A State moves from one process to the next as a whole. Its methods are called one at a time, on
// goroutines that are not loops'.
type State interface {
	// Freeze is called first, in the old process, when no input is read any more (except for UDP,
	// busy connections and pending calls), and jobs have ended or Patience is over: until Thaw,
	// nothing may change the state. An error ends the handover, and Thaw follows.
	Freeze() error

	// Save writes the state, in the old process.
	Save(w io.Writer) error

	// Thaw is called in the old process when the handover has failed: the state may change again.
	// It is not called after a successful handover.
	Thaw()

	// Restore reads what Save has written, in the new process, before Accept is called for the
	// first connection. An error ends the handover, and the old process continues.
	Restore(r io.Reader) error
}

// Reasons for the close of a Conn whose connection stays open in another process. Its peer notices
// nothing.
var (
	// ErrMoved: the connection has moved to the next process.
	ErrMoved = errors.New("handover: the connection has moved to the next process")

	// ErrNotTaken: Accept was called for a connection that was to move here, or for a copy of one,
	// and the connection stays with the previous process.
	ErrNotTaken = errors.New("handover: a rehearsal, or the connection stays with the previous process")
)

func (c *Config) fill() (err error) {
	if c.MaxState < 0 || c.Patience < 0 || c.Timeout < 0 || c.StartTimeout < 0 {
		return errors.New("handover: a negative MaxState, Patience, Timeout or StartTimeout; 0 means the default")
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

// A Report describes what Ready has done. In a process without a predecessor it is zero.
type Report struct {
	Predecessor int            // the PID of the process that was active before
	Died        bool           // the predecessor ended during the handover: what it still owned is lost
	Moved       int            // connections that have moved: the old process counts the same
	Stayed      map[string]int // connections that have not moved, by reason
	Lost        int            // connections that Accept refused here after the old process had died
	Longest     time.Duration  // the longest pause of a connection, from its last turn in the old process to its first in this one
}
