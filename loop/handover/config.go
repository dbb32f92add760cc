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

// Config is what Open has to know. The zero is usable.
type Config struct {
	// Path is that of the unix socket by which processes meet, in a directory that only their user
	// may write. The first process makes it, and hands it over like an address. "": this process
	// takes over from no other, and hands over to none. On systems other than unix another Path is
	// an error.
	Path string

	// Service names the program: one of another name is refused. "" means the base name of its
	// file.
	Service string

	// State is what belongs to no connection: registries, messages for peers that are away. With
	// one all connections move at one instant, together with it, or none does. nil: there is none,
	// and they move in small batches.
	State State

	// MaxState bounds what State.Save may write, in bytes. 0 means DefaultMaxState, 256 MiB.
	MaxState int64

	// Patience is how long work in hand may take: HTTP requests, jobs of Offload, replies. What is
	// not done by then stays with the old process. 0 means DefaultPatience, one second.
	Patience time.Duration

	// Timeout is how long connections may be on their way before the old process takes them back.
	// 0 means DefaultTimeout, 5 s.
	Timeout time.Duration

	// StartTimeout is how long a new process may take from its start, or from Open, to Ready. 0
	// means DefaultStartTimeout, one minute.
	StartTimeout time.Duration

	// PIDFile is the file that has the number of the process in charge. "": there is none.
	PIDFile string

	// Report is called when Ready has ended, with what it returns. nil: nobody asks.
	Report func(Report)
}

// A State moves from one process to the next, all of it at once. Its methods are called one at a
// time, each on some goroutine that is not a loop's.
type State interface {
	// Freeze comes first, in the old process, when no input is read, except for UDP and for what
	// SetBusy or a call needs, and jobs have ended, or Patience is over: until Thaw nothing may
	// change the state. An error ends the handover, and Thaw follows.
	Freeze() error

	// Save writes the state, in the old process.
	Save(w io.Writer) error

	// Thaw says, in the old process, that the handover has failed: the state may change again.
	// After a handover that has succeeded nothing is called.
	Thaw()

	// Restore reads what Save has written, in the new process, before Accept is called for the
	// first connection. An error ends the handover, and the old process goes on.
	Restore(r io.Reader) error
}

// Reasons with which connections close that are with another process. Their peers notice nothing.
var (
	// ErrMoved: the connection has moved to the next process.
	ErrMoved = errors.New("handover: the connection has moved to the next process")

	// ErrNotTaken: Accept was asked for a connection that was to move here, or for a copy of one,
	// and that goes on in the process before.
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

// A Report says what Ready has done. Its zero is that of a process without a predecessor.
type Report struct {
	Predecessor int            // the number of the process that was in charge before
	Died        bool           // it ended in the middle: what it still owned has ended with it
	Moved       int            // connections that have moved: the old process counts the same
	Stayed      map[string]int // those that have not, by reason
	Lost        int            // those that Accept refused here when the old process was dead already
	Longest     time.Duration  // the longest pause of a connection, from its last turn there to its first here
}
