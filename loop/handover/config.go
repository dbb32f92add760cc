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
	// On systems other than unix, any other Path is an error.
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

	// Timeout is how long connections may be in transit before the old process takes them back. 0
	// means DefaultTimeout, 5 s.
	Timeout time.Duration

	// StartTimeout is how long a new process may take to reach Ready, counted from its start or
	// from Open. 0 means DefaultStartTimeout, one minute.
	StartTimeout time.Duration

	// PIDFile is the file that holds the process ID of the process in charge. "" means none.
	PIDFile string

	// Report is called with the result of Ready when Ready has ended. It may be nil.
	Report func(Report)
}

// A State moves from one process to the next in one piece. Its methods are called one at a time, on
// goroutines that are not a loop's.
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

// A Report describes what Ready has done. The zero Report is that of a process without a
// predecessor.
type Report struct {
	Predecessor int            // the process ID of the process that was in charge before
	Died        bool           // it died during the handover, and the connections that it still owned with it
	Moved       int            // connections that have moved; the old process counts the same number
	Stayed      map[string]int // connections that have not moved, by reason
	Lost        int            // connections that Accept refused here after the old process had died
	Longest     time.Duration  // longest pause of a connection, from last turn there to first turn here
}
