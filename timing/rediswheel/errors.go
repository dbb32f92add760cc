package rediswheel

import (
	"cmp"
	"errors"
	"fmt"
	"time"
)

// Errors of a Queue, wrapped with details: test for them with errors.Is. Any other error is a
// wrapped error of the client: a network error, or an error answer of Redis.
var (
	ErrFull     = errors.New("redis is at its maxmemory")             // nothing was written; existing tasks still run
	ErrTooLarge = errors.New("too large")                             // the key, the body or the headers
	ErrBadTask  = errors.New("bad task")                              // a field is invalid; the text names it
	ErrConflict = errors.New("a task with this key is there already") // and OnConflict is Fail
	ErrNotFound = errors.New("no such task")                          // it was never added, is over, or was cancelled
	ErrRunning  = errors.New("the task is running")                   // too late to reschedule it
	ErrConfig   = errors.New("bad config")                            // the text names the field, or the setting of Redis

	// Errors for Config.OnError.
	ErrLost  = errors.New("redis has lost tasks")                 // keys that existed are gone
	ErrClock = errors.New("the Redis clock jumped")               // by more than half a lease
	ErrHints = errors.New("redis does not pass notifications on") // the Redis user is not permitted to publish or subscribe
)

// wrap adds details to an error.
func wrap(kind error, format string, args ...any) error {
	return fmt.Errorf("rediswheel: %w: %w", kind, fmt.Errorf(format, args...))
}

// Causes with which the context of a [Handler] ends, apart from its timeout; see context.Cause.
var (
	ErrLeaseLost = errors.New("rediswheel: another worker may have the task, or it was replaced")
	ErrStopping  = errors.New("rediswheel: the worker stops")
	ErrCancelled = errors.New("rediswheel: the task was cancelled")
)

// Permanent returns an error for a [Handler] to return. The task becomes a dead letter at once. A
// repeating task loses only this occurrence. A nil err gives nil.
func Permanent(err error) error { return judged(err, end{what: "dead"}) }

// RetryAfter returns an error for a [Handler] to return. The task is retried after d, regardless of
// Config.Backoff, and the attempt counts. A nil err gives nil.
func RetryAfter(d time.Duration, err error) error {
	return judged(err, end{what: "retry", at: -ceilDelay(d)})
}

// Postpone returns an error for a [Handler] to return if it has not begun. A worker gets the task
// again after d, and no attempt is counted. err may be nil.
func Postpone(d time.Duration, err error) error {
	return &verdict{err: err, end: end{what: "release", at: -ceilDelay(d)}}
}

func unable(err error) error { return &verdict{err: err, end: end{what: "release"}, unable: true} }

// A verdict is an error of a handler that determines what happens to the task.
type verdict struct {
	err    error
	end    end  // dead, retry or release
	unable bool // this worker cannot run the task but another may: it gives up the shard, too
}

func judged(err error, e end) error {
	if err == nil {
		return nil
	}
	return &verdict{err: err, end: e}
}

func (v *verdict) Error() string { return fmt.Sprint(v.err) }

func (v *verdict) Unwrap() error { return v.err }

// PanicError is the error of an attempt whose [Handler] panicked.
type PanicError struct {
	Value any
	Stack []byte
}

// Error returns a text with the value. The stack is only in Stack, for Config.OnError.
func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v", e.Value) }

// BatchError reports which tasks of an AddBatch were not added, or may not have been. All others
// were.
type BatchError struct {
	Errs []error // one for each task; nil if the task was added
}

// Error returns the text of the first error.
func (e *BatchError) Error() string {
	return fmt.Sprintf("some of %d tasks were not added; the first: %v", len(e.Errs), cmp.Or(e.Errs...))
}

// Unwrap returns the errors, for errors.Is.
func (e *BatchError) Unwrap() []error { return e.Errs }

// StopError is the error of Run if handlers were still running when it stopped waiting for them.
// Other workers get their tasks when the leases expire.
type StopError struct{ Running int }

// Error returns a text with the number of handlers.
func (e *StopError) Error() string {
	return fmt.Sprintf("rediswheel: %d tasks were still running after StopTimeout", e.Running)
}
