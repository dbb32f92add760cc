package redisgroup

import (
	"errors"
	"net"

	"github.com/redis/go-redis/v9"

	"github.com/loopwheel/loopwheel/internal/onredis"
)

// An outcome is what an error of Redis means for what was sent.
type outcome int

const (
	refused outcome = iota // it was not taken, and never will be
	later                  // it was not taken now
	unclear                // it may have been taken
)

// classify tells what an error means.
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

// explain adds to an error of Redis what to do about it.
func (h *Hub) explain(err error) error {
	return onredis.Explain(err, "docs/rooms.md", "{"+h.cfg.Prefix+":")
}

// An answerError is an error that a script has met, and answered about one of several.
type answerError string

// Error implements error.
func (e answerError) Error() string { return string(e) }

// RedisError implements redis.Error.
func (answerError) RedisError() {}
