package redisgroup

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"github.com/loopwheel/loopwheel/internal/defaults"
	"github.com/loopwheel/loopwheel/internal/onredis"
	"github.com/loopwheel/loopwheel/loop"
)

// MaxName is the longest name in bytes: of a room, of a user, or one to claim.
const MaxName = 256

// Config holds the settings of a Hub. The zero value is ready to use.
type Config struct {
	// Prefix begins the names of all keys and channels in Redis, and must not contain braces. ""
	// means "loopwheel".
	Prefix string

	// OneOrder makes members of plain rooms in this process get a message when it comes back from
	// Redis, in one order with those of other processes. If false, they get it at once.
	OneOrder bool

	// Lazy makes Open succeed although Redis is unreachable: the Hub keeps trying.
	Lazy bool

	// History is the minimum number of entries that an ordered room keeps in Redis; there may be a
	// few hundred more. 0 means 1,000.
	History int

	// HistoryTime is how long an ordered room without members and messages is kept in Redis, at
	// least one second. 0 means a day.
	HistoryTime time.Duration

	// Linger is how long a process stays subscribed to a room after its last member there has left.
	// 0 means 2 s.
	Linger time.Duration

	// Lease is how long the presence of a dead process lasts. The Hub renews it every third of this
	// time, with one command for all rooms. All processes must use the same Lease. 0 means 10 s; at
	// least 100 ms.
	Lease time.Duration

	// PublishTimeout is how long the Hub retries a message to an ordered room while Redis is
	// unreachable, and how long JoinFrom waits. 0 means 30 s.
	PublishTimeout time.Duration

	// MaxQueue is how many bytes of messages may be queued for Redis, including those in flight;
	// above that Broadcast returns ErrQueueFull, and Stats.Refused counts it. In a cluster, the
	// messages of a hash tag may in addition have their share of it. While the queue is full, users
	// who come and go again are not recorded. 0 means 16 MiB.
	MaxQueue int

	// MaxMessage is the longest message in bytes. 0 means 64 KiB.
	MaxMessage int

	// MaxReplay is how many bytes of history a joining member of an ordered room gets at most;
	// older entries are a Gap. It must be well below loop.Server.Limits.MaxOutbound. 0 means 512
	// KiB.
	MaxReplay int

	// Backlog is how many messages of a plain room wait for a slow member, as in
	// handler.GroupConfig. 0 means no backlog: Server.Limits.MaxOutbound closes slow members, as
	// always in ordered rooms, whose members catch up when they reconnect.
	Backlog int

	// Form returns what members get for an entry of an ordered room, or nil for nothing. It is
	// called once per entry and process, again if the entry is read again, and for each joining
	// member that gets it as history (Entry.Replayed). It runs on goroutines of the Hub, several at
	// once, and on loops. It may call the Hub, and must not block. Its result must not be changed
	// later. A panic goes to OnError. nil means Entry.Data for messages, and nothing for other
	// entries.
	Form func(e Entry) []byte

	// OnGap is called for each member of an ordered room that has missed something, on its loop and
	// in order with the messages. nil closes the connection with the *Gap.
	OnGap func(c *loop.Conn, g *Gap)

	// OnError gets errors that have no caller, such as a *LostError or a *SubscribeError: at most a
	// few times per second, on goroutines of the Hub and on loops. It may call methods of the Hub
	// that do not block, and must not block. nil means that they are logged.
	OnError func(err error)

	// Logger gets what OnError does not. The zero Logger writes errors to os.Stderr; zerolog.Nop()
	// is silent.
	Logger zerolog.Logger
}

// withDefaults fills in what is zero, and says what makes no sense.
func (c Config) withDefaults() (Config, error) {
	if c.Prefix = cmp.Or(c.Prefix, "loopwheel"); strings.ContainsAny(c.Prefix, "{}") {
		return c, fmt.Errorf("redisgroup: Config.Prefix %q contains braces, which Redis Cluster uses itself", c.Prefix)
	}
	c.Logger = onredis.Logger(c.Logger)
	if c.OnGap == nil {
		c.OnGap = func(conn *loop.Conn, g *Gap) { conn.CloseWithError(g) }
	}
	if c.Form == nil {
		c.Form = func(e Entry) []byte {
			if e.Kind != Message {
				return nil
			}
			return e.Data
		}
	}
	const name = "redisgroup: Config."
	err := cmp.Or(
		defaults.Set(name+"History", &c.History, 1000, 0),
		defaults.Set(name+"HistoryTime", &c.HistoryTime, 24*time.Hour, time.Second),
		defaults.Set(name+"Linger", &c.Linger, 2*time.Second, 0),
		defaults.Set(name+"Lease", &c.Lease, 10*time.Second, 100*time.Millisecond),
		defaults.Set(name+"PublishTimeout", &c.PublishTimeout, 30*time.Second, time.Millisecond),
		defaults.Set(name+"MaxQueue", &c.MaxQueue, 16<<20, 0),
		defaults.Set(name+"MaxMessage", &c.MaxMessage, 64<<10, 0),
		defaults.Set(name+"MaxReplay", &c.MaxReplay, 512<<10, 0),
		defaults.Set(name+"Backlog", &c.Backlog, 0, 0),
	)
	return c, err
}

// Errors of a Hub. Test for them with errors.Is.
var (
	// ErrClosed: the Hub is closed.
	ErrClosed = errors.New("redisgroup: hub closed")
	// ErrQueueFull: Config.MaxQueue bytes are already queued for Redis, because it is slow or
	// unreachable.
	ErrQueueFull = errors.New("redisgroup: too much waits for Redis")
	// ErrTimeout: Redis was unreachable for Config.PublishTimeout. It did not get the message.
	ErrTimeout = errors.New("redisgroup: Redis was away for too long")
	// ErrUncertain: the connection was lost while the message was being sent, and it is unknown
	// whether Redis has stored it. It is not sent again.
	ErrUncertain = errors.New("redisgroup: it is not known whether the message was published")
	// ErrClock, for Config.OnError: the Redis clock was set by more than half a lease.
	ErrClock = errors.New("redisgroup: redis' clock was set")
	// ErrMute, for Config.OnError: the Redis user may not publish.
	ErrMute = errors.New("redisgroup: the user may not publish")
	// ErrTaken: another owner has the name.
	ErrTaken = errors.New("redisgroup: name taken")
	// ErrKicked is the reason for a close by Hub.Kick, within a *KickError.
	ErrKicked = errors.New("redisgroup: kicked")
)

// A SizeError reports that a name or a message is too long, or a name is empty.
type SizeError struct {
	What     string // "room name", "user name", "name" (of a claim) or "message"
	Len, Max int
}

// Error implements error.
func (e *SizeError) Error() string {
	if e.Len == 0 {
		return fmt.Sprintf("redisgroup: %s is empty", e.What)
	}
	return fmt.Sprintf("redisgroup: %s of %d bytes; at most %d", e.What, e.Len, e.Max)
}

// A LostError reports that a message, a change of presence, or a query about a room did not reach
// Redis, or may not have, and why. With ErrTaken it reports that another owner has got a name.
type LostError struct {
	Room string // or the name of a user, or a claimed name
	Err  error
}

// Error implements error.
func (e *LostError) Error() string { return fmt.Sprintf("redisgroup: lost for %q: %v", e.Room, e.Err) }

// Unwrap returns Err.
func (e *LostError) Unwrap() error { return e.Err }

// A KickError is the reason for a close by Hub.Kick. It is ErrKicked to errors.Is.
type KickError struct{ Reason string }

// Error implements error.
func (e *KickError) Error() string { return "redisgroup: kicked: " + e.Reason }

// Is reports whether target is ErrKicked.
func (e *KickError) Is(target error) bool { return target == ErrKicked }
