package rediswheel

import (
	"fmt"
	"net/http"
	"net/url"
	"time"
	"unicode/utf8"
)

// What is taken at most.
const (
	MaxKey   = 512                                    // bytes of a key
	MaxDelay = 100 * 365 * 24 * time.Hour             // a due time is no further ahead
	maxMeta  = 16 << 10                               // bytes of all fields but key and body
	century  = 100*365*24*time.Hour + 25*24*time.Hour // with its leap days
)

// Policy says what adding does if a task with the same key is there, waiting or running. One that
// is dead, or was cancelled in its last run, is over: it is replaced under every policy.
type Policy int

// Policies of Task.OnConflict.
const (
	Replace Policy = iota // the old task never starts again, and if it runs, nothing comes of that; the zero value
	Ignore                // the old task stays as it is; adding reports no error
	Fail                  // the old task stays as it is; adding fails with ErrConflict
)

var policies = [...]string{"replace", "ignore", "fail"} // as add.lua wants them

// Misfire says what becomes of occurrences of a repeating task that were missed: the one after them
// has come, as no worker was there or the one before took too long.
type Misfire int

// Choices of Task.Misfire.
const (
	RunOnce Misfire = iota // however many were missed, the task runs once, at once; the zero value
	Skip                   // the task waits for the next occurrence
)

// A Task is something to be done later. Its key names it: there is never more than one task with a
// key. Its JSON form omits the key, the body and what changes.
type Task struct {
	Key   string        `json:"-"`         // any bytes, at most MaxKey; empty: Add makes a unique one
	Kind  string        `json:",omitzero"` // for Kinds
	Delay time.Duration `json:"-"`         // from now, by Redis' clock; zero and less is now
	At    time.Time     `json:"-"`         // in place of Delay; a time that has passed is now. Rounded up to a millisecond
	Body  []byte        `json:"-"`         // for the handler; at most Config.MaxBody

	OnConflict  Policy        `json:"-"`
	MaxAttempts int           `json:",omitzero"` // 0 means that of the worker's Config
	Timeout     time.Duration `json:",omitzero"` // of one attempt; 0 means that of the worker's Config

	// A repeating task has one of Every and Cron. It stays under its key until it is cancelled. An
	// occurrence starts only when the one before it is over: done, or given up after MaxAttempts,
	// which is reported but makes no dead letter. Periods count from the first occurrence and do
	// not drift.
	Every   time.Duration `json:",omitzero"` // rounded up to ms; first at Delay or At, or else one Every from now
	Cron    string        `json:",omitzero"` // "minute hour day month weekday" as crontab has it, or "@daily" and the like
	Zone    string        `json:",omitzero"` // of Cron, an IANA name as "Europe/Berlin"; empty means UTC
	Misfire Misfire       `json:",omitzero"`

	KeepResult time.Duration `json:",omitzero"` // of what SetResult leaves; not for tasks that repeat

	// For HTTPCallback, though any handler may use them.
	Method string      `json:",omitzero"`
	URL    string      `json:",omitzero"`
	Header http.Header `json:",omitempty"`

	// Set for handlers, and by Get, and not read when adding.
	Due      time.Time `json:"-"` // when this was to start: the attempt, not the occurrence
	Occurred time.Time `json:"-"` // when the first attempt of this occurrence was to start
	Attempt  int       `json:"-"` // 1 is the first
	Delivery int       `json:"-"` // of this attempt: above 1 after a worker was lost with it
}

func (t *Task) repeats() bool { return t.Every > 0 || t.Cron != "" }

// check finds what makes no sense in a task, before Redis is asked.
func (t *Task) check(maxBody int) error {
	if err := checkKey(t.Key); err != nil {
		return err
	}
	switch {
	case len(t.Body) > maxBody:
		return wrap(ErrTooLarge, "the body of %q has %d bytes, and Config.MaxBody is %d", t.Key, len(t.Body), maxBody)
	case !t.At.IsZero() && t.Delay != 0:
		return wrap(ErrBadTask, "%q has both At and Delay", t.Key)
	case t.Delay > MaxDelay || time.Until(t.At) > century:
		return wrap(ErrBadTask, "%q is due in more than 100 years", t.Key)
	case t.OnConflict < Replace || t.OnConflict > Fail:
		return wrap(ErrBadTask, "%q has OnConflict %d", t.Key, t.OnConflict)
	case t.MaxAttempts < 0 || t.KeepResult < 0 || t.Timeout < 0:
		return wrap(ErrBadTask, "%q has MaxAttempts %d, KeepResult %v, Timeout %v", t.Key, t.MaxAttempts, t.KeepResult, t.Timeout)
	case t.Every != 0 && (t.Every < time.Millisecond || t.Every > MaxDelay):
		return wrap(ErrBadTask, "%q has Every %v: want 1ms to 100 years", t.Key, t.Every)
	case t.Every > 0 && t.Cron != "":
		return wrap(ErrBadTask, "%q has both Every and Cron", t.Key)
	case t.Misfire < RunOnce || t.Misfire > Skip:
		return wrap(ErrBadTask, "%q has Misfire %d", t.Key, t.Misfire)
	case t.Zone != "" && t.Cron == "":
		return wrap(ErrBadTask, "%q has a Zone, but no Cron that it would apply to", t.Key)
	case t.repeats() && t.KeepResult > 0:
		return wrap(ErrBadTask, "%q repeats and has KeepResult: its occurrences would have one result", t.Key)
	case !utf8.ValidString(fmt.Sprint(t.URL, t.Header)):
		return wrap(ErrBadTask, "the URL or a header of %q is not UTF-8", t.Key)
	}
	u, err := url.Parse(t.URL)
	if err != nil || t.URL != "" && (u.Scheme != "http" && u.Scheme != "https" || u.Host == "") {
		return wrap(ErrBadTask, "the URL %q of %q is not of the form http://host/path or https://host/path", t.URL, t.Key)
	}
	if t.Cron != "" {
		now := time.Now()
		_, err = t.next(now, now)
	}
	return err
}

func checkKey(key string) error {
	if key == "" {
		return wrap(ErrBadTask, "its Key is empty")
	}
	if len(key) > MaxKey {
		return wrap(ErrTooLarge, "the key %.32q... has %d bytes, of at most %d", key, len(key), MaxKey)
	}
	return nil
}

// start is when the task is to start, as scripts want it: a time in ms, or a negative delay.
func (t *Task) start() int64 {
	if t.At.IsZero() {
		return -ceilDelay(t.Delay)
	}
	return ceilMilli(t.At)
}

// ceilMilli is the first millisecond since 1970 that is not before t.
func ceilMilli(t time.Time) int64 {
	return latest(t.Add(time.Millisecond-1), time.UnixMilli(0)).UnixMilli()
}

// ceilDelay is d in milliseconds, rounded up, or 0.
func ceilDelay(d time.Duration) int64 {
	if d <= 0 {
		return 0
	}
	return int64((d-1)/time.Millisecond) + 1
}
