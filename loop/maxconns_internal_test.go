package loop

import (
	"bytes"
	"strings"
	"testing"

	"github.com/rs/zerolog"
)

// roomFor is an engine that has room for so many sockets.
type roomFor struct {
	rigEngine
	sockets int
}

func (e *roomFor) Capacity(int) int { return e.sockets }

// MaxConns follows from the limit of files, up to a million. More may be asked for, and only if the
// limit does not allow it is that worth a line in the log.
func TestMaxConnsFollowsFromTheLimit(t *testing.T) {
	for _, c := range []struct {
		room, maxConns, want int
		warned               bool
	}{
		{room: 900, want: 900},
		{room: 5_000_000, want: 1_000_000},
		{room: 5_000_000, maxConns: 4_000_000, want: 4_000_000},
		{room: 5_000_000, maxConns: 5_000_001, want: 5_000_001, warned: true},
		{room: 900, maxConns: 900, want: 900},
		{room: 900, maxConns: 901, want: 901, warned: true},
	} {
		var log bytes.Buffer
		s := &Server{Limits: Limits{MaxConns: c.maxConns}, NumLoops: 1, Logger: zerolog.New(&log), engine: &roomFor{sockets: c.room}}
		s.limitConns()
		s.journal.Wait()
		if warned := strings.Contains(log.String(), "is too low for Server.Limits.MaxConns"); s.Limits.MaxConns != c.want || warned != c.warned {
			t.Errorf("%+v: MaxConns is %d, warned: %v", c, s.Limits.MaxConns, warned)
		}
	}
}
