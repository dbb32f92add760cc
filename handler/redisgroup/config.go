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

// MaxName is the maximum length, in bytes, of the name of a room, of a user, or of a claim.
const MaxName = 256

// Config configures a Hub. The zero Config is ready to use.
type Config struct {
	// Prefix is the prefix of all keys and channels in Redis. It must not contain braces. "" means
	// "loopwheel".
	Prefix string

	// OneOrder delivers messages of plain rooms to members in this process when Redis returns them,
	// in one order with the messages of other processes. If false, these members get a message at
	// once.
	OneOrder bool

	// Lazy lets Open succeed although Redis is unreachable or unsuitable. The Hub keeps trying to
	// connect.
	Lazy bool

	// History is the minimum number of entries that an ordered room keeps in Redis. The room may
	// keep a few hundred more. 0 means 1,000.
	History int

	// HistoryTime is how long Redis keeps an ordered room that has neither members nor messages.
	// The minimum is one second. 0 means one day.
	HistoryTime time.Duration

	// Linger is how long a process stays subscribed to a room after the last member in this process
	// has left. 0 means 2 s.
	Linger time.Duration

	// Lease is how long presence and claimed names outlive a process that dies. The Hub renews it
	// three times per lease, with one command for all rooms. All processes must use the same value.
	// 0 means 10 s; the minimum is 100 ms.
	Lease time.Duration

	// PublishTimeout is how long the Hub retries a message that Redis has not accepted, and how
	// long JoinFrom waits. It holds even if the client's timeouts are longer. A message to a plain
	// room or a user is retried only if Redis has certainly not accepted it. 0 means 30 s.
	PublishTimeout time.Duration

	// MaxQueue is the maximum number of bytes of messages that are queued for Redis or in flight to
	// it. Above it, Broadcast returns ErrQueueFull, and Stats.Refused counts the message. In a
	// cluster the names of a Hub are spread over 64 hash tags, and the messages of each may exceed
	// the maximum by their share of it. While the queue is full, users who join and leave again are
	// not recorded. 0 means 16 MiB.
	MaxQueue int

	// MaxMessage is the maximum length of a message, in bytes. 0 means 64 KiB.
	MaxMessage int

	// MaxReplay is the maximum number of bytes of history that a member gets when it joins an
	// ordered room. Older entries are left out: with From.Since, Arrival.Gap reports that. It must
	// be well below loop.Server.Limits.MaxOutbound. 0 means 512 KiB.
	MaxReplay int

	// Backlog is how many messages of a plain room are queued for a slow member, as in
	// handler.GroupConfig. 0 means no backlog: Server.Limits.MaxOutbound then closes slow members,
	// as it always does in ordered rooms, whose members catch up when they reconnect.
	Backlog int

	// Form returns the bytes that members get for an entry of an ordered room, or nil for none. The
	// Hub calls it once per entry and process, once more if it reads the entry again, and once for
	// each joining member that gets the entry as history (Entry.Replayed). It runs on several
	// goroutines of the Hub at once, and on loops. It may call the Hub, and must not block. It must
	// not change e.Data. Its result must not be changed later. OnError gets a panic of Form. nil
	// means Entry.Data for messages and nothing for other entries.
	Form func(e Entry) []byte

	// OnGap is called for each member of an ordered room that has missed entries, on the member's
	// loop and in order with the messages. nil closes the connection with the *Gap.
	OnGap func(c *loop.Conn, g *Gap)

	// OnError gets errors that have no caller to return to, such as a *LostError or a
	// *SubscribeError, at most a few times per second. It runs on goroutines of the Hub and on
	// loops. It may call methods of the Hub that do not wait, and must not block. nil logs the
	// error.
	OnError func(err error)

	// Logger gets warnings, and errors if OnError is nil. The zero Logger writes only errors, to
	// os.Stderr; zerolog.Nop() is silent.
	Logger zerolog.Logger
}

// withDefaults replaces zero fields by their defaults, and reports invalid ones.
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
	// ErrClosed means that the Hub is closed.
	ErrClosed = errors.New("redisgroup: hub closed")
	// ErrQueueFull means that Config.MaxQueue bytes are queued already: Redis is slow or
	// unreachable.
	ErrQueueFull = errors.New("redisgroup: the queue for Redis is full")
	// ErrTimeout means that Redis was unreachable for Config.PublishTimeout. It did not accept the
	// message.
	ErrTimeout = errors.New("redisgroup: Redis was unreachable for too long")
	// ErrUncertain means that the message may or may not have been published: the connection was
	// lost while Redis was processing it, or Redis did not answer within Config.PublishTimeout. The
	// Hub does not send it again.
	ErrUncertain = errors.New("redisgroup: the message may or may not have been published")
	// ErrClock is passed to Config.OnError. The Redis clock was changed by more than half a lease.
	ErrClock = errors.New("redisgroup: the Redis clock jumped")
	// ErrMute is passed to Config.OnError. The Redis user is not permitted to publish.
	ErrMute = errors.New("redisgroup: the Redis user is not permitted to publish")
	// ErrTaken means that another owner holds the name.
	ErrTaken = errors.New("redisgroup: name taken")
	// ErrKicked is the reason for which Hub.Kick closes connections, wrapped in a *KickError.
	ErrKicked = errors.New("redisgroup: kicked")
)

// A SizeError reports a name or a message that is too long, or an empty name.
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
// Redis, or may not have, and why. With ErrTaken it reports that another owner has taken a name.
type LostError struct {
	Room string // or the name of a user, or the claimed name
	Err  error
}

// Error implements error.
func (e *LostError) Error() string { return fmt.Sprintf("redisgroup: lost for %q: %v", e.Room, e.Err) }

// Unwrap returns Err.
func (e *LostError) Unwrap() error { return e.Err }

// A KickError is the error with which Hub.Kick closes connections. errors.Is matches it with
// ErrKicked.
type KickError struct{ Reason string }

// Error implements error.
func (e *KickError) Error() string { return "redisgroup: kicked: " + e.Reason }

// Is reports whether target is ErrKicked.
func (e *KickError) Is(target error) bool { return target == ErrKicked }
