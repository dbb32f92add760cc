package rediswheel

import (
	"cmp"
	"errors"
	"fmt"
	"time"
)

// Errors that tell what was wrong. They are wrapped with what exactly it was: use errors.Is. Any
// other error is that of the client, wrapped as well: the network's, or what Redis answered.
var (
	ErrFull     = errors.New("redis is at its maxmemory")             // nothing was written; what is there drains
	ErrTooLarge = errors.New("too large")                             // key, body or headers
	ErrBadTask  = errors.New("bad task")                              // a field makes no sense; the text names it
	ErrConflict = errors.New("a task with this key is there already") // and OnConflict is Fail
	ErrNotFound = errors.New("no such task")                          // it was never added, is over, or was cancelled
	ErrRunning  = errors.New("the task is running")                   // too late to move it
	ErrConfig   = errors.New("bad config")                            // the text names the field, or Redis' own setting

	// For Config.OnError.
	ErrLost  = errors.New("redis has lost tasks")            // keys are gone that were there
	ErrClock = errors.New("redis' clock was set")            // by more than half a lease
	ErrHints = errors.New("redis does not pass messages on") // the user may not publish or subscribe
)

// wrap adds what exactly was wrong.
func wrap(kind error, format string, args ...any) error {
	return fmt.Errorf("rediswheel: %w: %w", kind, fmt.Errorf(format, args...))
}

// Causes that the context of a [Handler] ends with besides its timeout; see context.Cause.
var (
	ErrLeaseLost = errors.New("rediswheel: another worker may have the task, or it was replaced")
	ErrStopping  = errors.New("rediswheel: the worker stops")
	ErrCancelled = errors.New("rediswheel: the task was cancelled")
)

// Permanent is for a [Handler] to return: the task goes to the dead letters at once. A repeating
// task only loses this occurrence. A nil err gives nil.
func Permanent(err error) error { return judged(err, end{what: "dead"}) }

// RetryAfter is for a [Handler] to return: the task is tried again after d, whatever Config.Backoff
// says. It counts as an attempt. A nil err gives nil.
func RetryAfter(d time.Duration, err error) error {
	return judged(err, end{what: "retry", at: -ceilDelay(d)})
}

// Postpone is for a [Handler] to return that has not begun: the task is given to some worker again
// after d, and no attempt is counted.
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

// PanicError is what a panic of a [Handler] counts as: an attempt that failed.
type PanicError struct {
	Value any
	Stack []byte
}

// Error says what the value was; the stack is for Config.OnError.
func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v", e.Value) }

// BatchError says which tasks of an AddBatch were not added. All others were.
type BatchError struct {
	Errs []error // as many as there were tasks; nil where the task was added
}

// Error names the first.
func (e *BatchError) Error() string {
	return fmt.Sprintf("some of %d tasks were not added; the first: %v", len(e.Errs), cmp.Or(e.Errs...))
}

// Unwrap returns the errors, for errors.Is.
func (e *BatchError) Unwrap() []error { return e.Errs }

// StopError is what Run returns if handlers had not returned when it gave up waiting for them.
// Their tasks are given to other workers when their leases run out.
type StopError struct{ Running int }

// Error counts them.
func (e *StopError) Error() string {
	return fmt.Sprintf("rediswheel: %d tasks were still running after StopTimeout", e.Running)
}
