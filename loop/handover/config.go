package handover

import (
	"cmp"
	"errors"
	"net"
	"time"
)

// Defaults of a Config.
const (
	DefaultTimeout  = 10 * time.Second
	DefaultPatience = time.Second
)

// Config is what Take and Listen have to know. Only Path must be set.
type Config struct {
	// Path is that of a unix socket by which the two processes meet, in a directory that only their
	// user may write.
	Path string

	// Check, if not nil, looks at the state that a Saver has saved, before the new process takes
	// its connection. An error leaves it with the old process, where it drains: for a state of a
	// program that is older or newer than this one understands. Take calls it, on the caller's
	// goroutine.
	Check func(state []byte) error

	// Also are listeners that Listen hands over besides those of the Server: of a net/http server,
	// say. The next process finds them in Report.Also, by the same names. Both have them until each
	// closes its own.
	Also map[string]net.Listener

	// Timeout is how long each side waits for a word of the other. 0 means DefaultTimeout, 10 s.
	// The time that the new process takes to start its Server counts.
	Timeout time.Duration

	// Patience is how long the old process goes on asking connections that cannot move at the
	// moment: those with jobs under way, say. 0 means DefaultPatience, one second. The others have
	// moved before.
	Patience time.Duration
}

func (c *Config) fill() error {
	switch {
	case c.Path == "":
		return errors.New("handover: Config.Path is empty: both processes need the path of a unix socket")
	case c.Timeout < 0 || c.Patience < 0:
		return errors.New("handover: a negative Timeout or Patience; 0 means the default")
	}
	c.Timeout, c.Patience = cmp.Or(c.Timeout, DefaultTimeout), cmp.Or(c.Patience, DefaultPatience)
	return nil
}

// A Report says what Take has done.
type Report struct {
	Predecessor bool // there was an old process
	Died        bool // it ended in the middle, and what it had not handed over has ended with it
	Listeners   int  // that were taken over
	Conns       int  // that were taken over
	Refused     int  // that Config.Check refused
	Stayed      int  // that the old process had left in the end

	// Also are the old process' Config.Also. The caller closes them, or has them closed.
	Also map[string]net.Listener

	// LongestPause is how long a connection was on its way at most: from the last turn of its old
	// loop until it was given to the new one.
	LongestPause time.Duration
}

// ErrTakenBack is returned by Take, wrapped, if the old process has given up in the middle.
var ErrTakenBack = errors.New("handover: the old process has given up, and goes on serving what has not moved")
