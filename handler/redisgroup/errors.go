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
	if errors.As(err, &answered) {
		return classifyAnswer(answered.Error())
	}
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "dial" || errors.Is(err, errUnknown) ||
		errors.Is(err, redis.ErrPoolTimeout) || errors.Is(err, redis.ErrPoolExhausted) {
		return later
	}
	return unclear
}

// classifyAnswer tells what an error means that Redis answered with.
func classifyAnswer(text string) outcome {
	switch errorCode(text) {
	case "MOVED", "ASK", "TRYAGAIN", "CLUSTERDOWN", "LOADING", "READONLY", "MASTERDOWN", "NOSCRIPT", "BUSY", "NOREPLICAS", "NOLEASE":
		return later
	case "STALE":
		return unclear
	}
	return refused
}

// errorCode returns the first word of an error that Redis answered with. Redis 6 puts in front of
// it where a script has met it: "ERR Error running script (call to f_...): @user_script:1:
// @user_script: 1: -OOM ...".
func errorCode(text string) string {
	if i := strings.LastIndex(text, "@user_script:"); i >= 0 {
		if _, after, ok := strings.Cut(text[i:], ": -"); ok {
			text = after
		}
	}
	word, _, _ := strings.Cut(strings.TrimPrefix(text, "ERR "), " ")
	return word
}

// isMoved reports whether an error says that a bucket has gone elsewhere.
func isMoved(err error) bool {
	switch errorCode(err.Error()) {
	case "MOVED", "ASK", "CLUSTERDOWN", "READONLY", "MASTERDOWN":
		return true
	}
	return false
}

// isDenied reports whether Redis says that the user has no right to do that.
func isDenied(err error) bool { return err != nil && errorCode(err.Error()) == "NOPERM" }
