// Package redisopt makes options of go-redis from those that a client has.
package redisopt

import (
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// Copy returns options for a client of our own that reaches the same server in the same way as the
// one that has opt: as the same user, with the same Dialer, TLS, protocol and timeouts. All is
// copied, but what go-redis does unasked on a connection, and would do once more there: maintenance
// notifications, of which a Redis is asked at each new connection and which move connections behind
// our back; and a client-side cache, which answers with what was true a moment ago, and reads
// connections that nobody has asked it to. opt is what Client.Options returned, and stays as it is.
func Copy(opt *redis.Options) *redis.Options {
	o := *opt
	o.ReadTimeout, o.WriteTimeout = timeout(o.ReadTimeout), timeout(o.WriteTimeout)
	o.MaxRetries = orNone(o.MaxRetries)
	o.MinRetryBackoff, o.MaxRetryBackoff = orNone(o.MinRetryBackoff), orNone(o.MaxRetryBackoff)
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	o.PushNotificationProcessor = nil // it has the notifications of the other client
	o.ClientSideCache, o.ClientSideCacheConfig = nil, nil
	return &o
}

// CopyCluster is Copy for a cluster. Nothing is read from replicas: they may not know yet.
func CopyCluster(opt *redis.ClusterOptions) *redis.ClusterOptions {
	o := *opt
	o.ReadTimeout, o.WriteTimeout = orNone(o.ReadTimeout), orNone(o.WriteTimeout)
	o.MaxRedirects = orNone(o.MaxRedirects)
	o.MinRetryBackoff, o.MaxRetryBackoff = orNone(o.MinRetryBackoff), orNone(o.MaxRetryBackoff)
	o.ReadOnly, o.RouteByLatency, o.RouteRandomly = false, false, false
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	o.PushNotificationProcessor = nil
	return &o
}

// timeout returns the ReadTimeout or WriteTimeout that makes a client have d, which is what another
// one says that it has: no timeout is -1 when a client is made, and 0 when it is; that no deadlines
// are set at all is -2, and -1.
func timeout(d time.Duration) time.Duration {
	if d <= 0 {
		return d - 1
	}
	return d
}

// orNone is the same for what has a default: none is -1 when a client is made, and 0 when it is.
func orNone[T int | time.Duration](n T) T {
	if n == 0 {
		return -1
	}
	return n
}
