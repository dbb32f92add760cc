package rediswheel

import (
	"cmp"
	"errors"
	"fmt"
	"time"
)

// Errors, wrapped with details: use errors.Is. Any other error is the client's, also wrapped: of
// the network, or an answer of Redis.
var (
	ErrFull     = errors.New("redis is at its maxmemory")             // nothing was written; existing tasks still run
	ErrTooLarge = errors.New("too large")                             // key, body or headers
	ErrBadTask  = errors.New("bad task")                              // a field is invalid; the text names it
	ErrConflict = errors.New("a task with this key is there already") // and OnConflict is Fail
	ErrNotFound = errors.New("no such task")                          // it was never added, has finished, or was cancelled
	ErrRunning  = errors.New("the task is running")                   // too late to reschedule it
	ErrConfig   = errors.New("bad config")                            // the text names the field, or the setting of Redis

	// For Config.OnError.
	ErrLost  = errors.New("redis has lost tasks")            // keys that existed are gone
	ErrClock = errors.New("redis' clock was set")            // by more than half a lease
	ErrHints = errors.New("redis does not pass messages on") // the user may not publish or subscribe
)

// wrap adds what exactly was wrong.
func wrap(kind error, format string, args ...any) error {
	return fmt.Errorf("rediswheel: %w: %w", kind, fmt.Errorf(format, args...))
}

// Causes with which the context of a Handler ends, in addition to its timeout; see context.Cause.
var (
	ErrLeaseLost = errors.New("rediswheel: another worker may have the task, or it was replaced")
	ErrStopping  = errors.New("rediswheel: the worker stops")
	ErrCancelled = errors.New("rediswheel: the task was cancelled")
)

// Permanent wraps an error that a Handler returns: the task becomes a dead letter at once. A
// repeating task loses only this occurrence. A nil err gives nil.
func Permanent(err error) error { return judged(err, end{what: "dead"}) }

// RetryAfter wraps an error that a Handler returns: the task is retried after d instead of
// Config.Backoff. It counts as an attempt. A nil err gives nil.
func RetryAfter(d time.Duration, err error) error {
	return judged(err, end{what: "retry", at: -ceilDelay(d)})
}

// Postpone returns an error for a Handler that has not begun: some worker gets the task again after
// d, and no attempt is counted.
func Postpone(d time.Duration, err error) error {
	return &verdict{err: err, end: end{what: "release", at: -ceilDelay(d)}}
}

func unable(err error) error { return &verdict{err: err, end: end{what: "release"}, unable: true} }

// A verdict is an error of a handler that says what becomes of the task.
type verdict struct {
	err    error
	end    end  // dead, retry or release
	unable bool // this worker cannot run the task, and another may: it gives up the shard, too
}

func judged(err error, e end) error {
	if err == nil {
		return nil
	}
	return &verdict{err: err, end: e}
}

func (v *verdict) Error() string { return fmt.Sprint(v.err) }

func (v *verdict) Unwrap() error { return v.err }

// A PanicError is the error of an attempt whose Handler panicked.
type PanicError struct {
	Value any
	Stack []byte
}

// Error contains the value, but not the stack, which is for Config.OnError.
func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v", e.Value) }

// A BatchError reports which tasks of an AddBatch were not added. All others were.
type BatchError struct {
	Errs []error // one for each task; nil if it was added
}

// Error describes the first error.
func (e *BatchError) Error() string {
	return fmt.Sprintf("some of %d tasks were not added; the first: %v", len(e.Errs), cmp.Or(e.Errs...))
}

// Unwrap returns the errors, for errors.Is.
func (e *BatchError) Unwrap() []error { return e.Errs }

// A StopError is the error of Run if handlers had not returned when it stopped waiting for them.
// Other workers get their tasks when their leases expire.
type StopError struct{ Running int }

// Error contains their number.
func (e *StopError) Error() string {
	return fmt.Sprintf("rediswheel: %d tasks were still running after StopTimeout", e.Running)
}
