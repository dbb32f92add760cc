package redisgroup

import (
	"errors"
	"fmt"
	"net"

	"github.com/redis/go-redis/v9"

	"github.com/loopwheel/loopwheel/internal/onredis"
)

// An outcome is what an error of Redis means for a request.
type outcome int

const (
	refused outcome = iota // Redis did not accept it, and never will
	later                  // Redis did not accept it this time
	unclear                // Redis may have accepted it
)

// classify returns the outcome that an error means.
func classify(err error) outcome {
	var answered redis.Error
	var op *net.OpError
	switch {
	case errors.Is(err, errUnsent):
		return later
	case errors.As(err, &answered):
		switch onredis.Code(answered) {
		case "MOVED", "ASK", "TRYAGAIN", "CLUSTERDOWN", "LOADING", "READONLY", "MASTERDOWN", "NOSCRIPT", "BUSY", "NOREPLICAS", "NOLEASE":
			return later
		case "STALE":
			return unclear
		}
		return refused
	case errors.Is(err, redis.ErrClosed), errors.Is(err, redis.ErrPoolTimeout), errors.Is(err, redis.ErrPoolExhausted), errors.As(err, &op) && op.Op == "dial":
		return later
	}
	return unclear
}

// explain adds advice to an error of Redis.
func (h *Hub) explain(err error) error {
	return onredis.Explain(err, "docs/rooms.md", "{"+h.cfg.Prefix+":")
}

// inRedis says what the Hub could not do, unless err is nil.
func inRedis(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("redisgroup: cannot %s in Redis: %w", what, err)
}

// An answerError is an error that a script returned for one of several requests.
type answerError string

// Error implements error.
func (e answerError) Error() string { return string(e) }

// RedisError implements redis.Error.
func (answerError) RedisError() {}
