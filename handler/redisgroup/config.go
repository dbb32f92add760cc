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

// MaxName is how many bytes a name may have: of a room, of a user, or one that is claimed.
const MaxName = 256

// Config is what a Hub is opened with. The zero Config is ready to use.
type Config struct {
	// Prefix begins all keys and channels in Redis, and must not contain braces. "" means
	// "loopwheel".
	Prefix string

	// OneOrder has members of plain rooms in this process get a message when it comes back from
	// Redis, in one order with those of other processes. If false, they get it at once.
	OneOrder bool

	// Lazy has Open succeed although Redis is away: the Hub goes on trying.
	Lazy bool

	// History is how many entries an ordered room keeps in Redis, at least: at most a few hundred
	// more. 0 means 1,000.
	History int

	// HistoryTime is how long an ordered room without members and messages is kept in Redis: a
	// second at least. 0 means a day.
	HistoryTime time.Duration

	// Linger is how long a process stays subscribed to a room after its last member there has left.
	// 0 means 2 s.
	Linger time.Duration

	// Lease is how long presence outlives a process that dies. It is renewed three times as often,
	// with one command for all rooms. All processes have the same. 0 means 10 s; at least 100 ms.
	Lease time.Duration

	// PublishTimeout is for how long a message to an ordered room is tried again while Redis is
	// away, and for how long JoinFrom waits. 0 means 30 s.
	PublishTimeout time.Duration

	// MaxQueue is how many bytes of messages may wait for Redis, those on their way included; then
	// Broadcast returns ErrQueueFull, and Stats.Refused counts it. In a cluster the messages of a
	// hash tag may have their share of it beyond that. While so much waits, users who come and go
	// again are not recorded at all. 0 means 16 MiB.
	MaxQueue int

	// MaxMessage is how long a message may be, in bytes. 0 means 64 KiB.
	MaxMessage int

	// MaxReplay is how many bytes one who joins an ordered room is sent of its past at most; what
	// is older is a Gap. It must be well below loop.Server.Limits.MaxOutbound. 0 means 512 KiB.
	MaxReplay int

	// Backlog is how many messages of a plain room wait for a slow member, as in
	// handler.GroupConfig. 0 means no backlog: Server.Limits.MaxOutbound closes slow members, as
	// always in ordered rooms, whose members catch up when they come back.
	Backlog int

	// Form returns what members get of an entry of an ordered room, or nil for nothing. It is
	// called once per entry and process, again if the entry is read again, and for each who joins
	// and gets it as the past (Entry.Replayed). It runs on goroutines of the Hub, several at once,
	// and on loops. It may call the Hub, and must not block. Its result must not be changed later.
	// A panic goes to OnError. nil means Entry.Data of messages, and nothing of the others.
	Form func(e Entry) []byte

	// OnGap is called for each member of an ordered room that has missed something, on its loop and
	// in order with the messages. nil closes the connection with the *Gap.
	OnGap func(c *loop.Conn, g *Gap)

	// OnError gets errors that have no caller to return to, such as a *LostError or a
	// *SubscribeError: at most a few times per second, on goroutines of the Hub and on loops. It
	// may call methods of the Hub that do not wait, and must not block. nil logs it.
	OnError func(err error)

	// Logger gets what OnError does not. The zero Logger writes errors to os.Stderr;
	// zerolog.Nop() is silent.
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
	// ErrQueueFull: Config.MaxQueue bytes wait for Redis already, as it is slow or away.
	ErrQueueFull = errors.New("redisgroup: too much waits for Redis")
	// ErrTimeout: Redis was away for Config.PublishTimeout. It did not take the message.
	ErrTimeout = errors.New("redisgroup: Redis was away for too long")
	// ErrUncertain: the connection was lost while Redis had the message, and it cannot be known
	// whether it was taken. It is not sent again.
	ErrUncertain = errors.New("redisgroup: it is not known whether the message was published")
	// ErrClock, for Config.OnError: Redis' clock was set by more than half a lease.
	ErrClock = errors.New("redisgroup: redis' clock was set")
	// ErrMute, for Config.OnError: the Redis user may not publish.
	ErrMute = errors.New("redisgroup: the user may not publish")
	// ErrTaken: the name is another's.
	ErrTaken = errors.New("redisgroup: name taken")
	// ErrKicked is what a connection is closed with by Hub.Kick, within a *KickError.
	ErrKicked = errors.New("redisgroup: kicked")
)

// A SizeError says that a name or a message is too long, or a name is empty.
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

// A LostError says that a message, news of a user, or a query about a room did not reach Redis,
// or may not have, and why. With ErrTaken it says that a name was lost to another owner.
type LostError struct {
	Room string // or the name of a user, or the one that was claimed
	Err  error
}

// Error implements error.
func (e *LostError) Error() string { return fmt.Sprintf("redisgroup: lost for %q: %v", e.Room, e.Err) }

// Unwrap returns Err.
func (e *LostError) Unwrap() error { return e.Err }

// A KickError is what Hub.Kick closes connections with. It is ErrKicked to errors.Is.
type KickError struct{ Reason string }

// Error implements error.
func (e *KickError) Error() string { return "redisgroup: kicked: " + e.Reason }

// Is reports whether target is ErrKicked.
func (e *KickError) Is(target error) bool { return target == ErrKicked }
