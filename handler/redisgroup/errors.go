package redisgroup

import (
	"errors"
	"net"
	"strings"

	"github.com/redis/go-redis/v9"
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
		switch errorCode(answered) {
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

// errorCode returns the first word of an error that Redis answered with. Redis 6 puts in front of
// it where a script has met it: "ERR Error running script (call to f_...): @user_script:1:
// @user_script: 1: -OOM ...".
func errorCode(err error) string {
	text := err.Error()
	if i := strings.LastIndex(text, "@user_script:"); i >= 0 {
		if _, after, ok := strings.Cut(text[i:], ": -"); ok {
			text = after
		}
	}
	word, _, _ := strings.Cut(strings.TrimPrefix(text, "ERR "), " ")
	return word
}

// isDenied reports whether Redis says that the user has no right to do that.
func isDenied(err error) bool { return err != nil && errorCode(err) == "NOPERM" }

// An answerError is an error that a script has met, and answered about one of several.
type answerError string

// Error implements error.
func (e answerError) Error() string { return string(e) }

// RedisError implements redis.Error.
func (answerError) RedisError() {}
