// Package redisopt makes options of go-redis from those that a client has.
package redisopt

import "time"

// Timeout returns the ReadTimeout or WriteTimeout that makes a client have d, which is what another
// one says that it has: no timeout is -1 when a client is made, and 0 when it is; that no deadlines
// are set at all is -2, and -1.
func Timeout(d time.Duration) time.Duration {
	if d <= 0 {
		return d - 1
	}
	return d
}
