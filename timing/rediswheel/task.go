package rediswheel

import (
	"fmt"
	"net/http"
	"net/url"
	"time"
	"unicode/utf8"
)

// Limits of a Task.
const (
	MaxKey   = 512                                    // bytes of a key
	MaxDelay = 100 * 365 * 24 * time.Hour             // how far ahead a due time may be
	maxMeta  = 16 << 10                               // bytes of all fields except key and body
	century  = 100*365*24*time.Hour + 25*24*time.Hour // including leap days
)

// Policy determines what Add does if a task with the same key exists, waiting or running. A task
// that is dead, or was cancelled during its last run, is over: it is replaced under every policy.
type Policy int

// Policies of Task.OnConflict.
const (
	Replace Policy = iota // the zero value: the old task never starts again; if it runs, its result is ignored
	Ignore                // the old task stays as it is; adding reports no error
	Fail                  // the old task stays as it is; adding fails with ErrConflict
)

var policies = [...]string{"replace", "ignore", "fail"} // as add.lua expects them

// Misfire determines what happens to missed occurrences of a repeating task. An occurrence is
// missed if the next one is due already, because no worker ran or the previous occurrence took too
// long.
type Misfire int

// Values of Task.Misfire.
const (
	RunOnce Misfire = iota // the zero value: the task runs once, at once, however many were missed
	Skip                   // the task waits for the next occurrence
)

// A Task is work to be done later. Its key identifies it: a queue never has two tasks with the same
// key. Its JSON form omits the key, the body and everything that changes.
type Task struct {
	Key   string        `json:"-"`         // any bytes, at most MaxKey; if empty, Add makes a unique one
	Kind  string        `json:",omitzero"` // for Kinds
	Delay time.Duration `json:"-"`         // from now, by Redis' clock; zero and below mean now
	At    time.Time     `json:"-"`         // in place of Delay; a past time means now; rounded up to a millisecond
	Body  []byte        `json:"-"`         // for the handler; at most Config.MaxBody

	OnConflict  Policy        `json:"-"`
	MaxAttempts int           `json:",omitzero"` // 0 means that of the worker's Config
	Timeout     time.Duration `json:",omitzero"` // of one attempt; 0 means that of the worker's Config

	// A repeating task has either Every or Cron. It stays under its key until it is cancelled. An
	// occurrence starts only when the previous one is over: done, or given up after MaxAttempts,
	// which is reported but makes no dead letter. Periods count from the first occurrence and do
	// not drift.
	Every   time.Duration `json:",omitzero"` // rounded up to ms; first at Delay or At, otherwise one Every from now
	Cron    string        `json:",omitzero"` // "minute hour day month weekday" as in crontab, or "@daily" and so on
	Zone    string        `json:",omitzero"` // of Cron, an IANA name such as "Europe/Berlin"; empty means UTC
	Misfire Misfire       `json:",omitzero"`

	KeepResult time.Duration `json:",omitzero"` // how long a result of SetResult is kept; not for repeating tasks

	// For HTTPCallback; other handlers may use them, too.
	Method string      `json:",omitzero"`
	URL    string      `json:",omitzero"`
	Header http.Header `json:",omitempty"`

	// Set for handlers and by Get; ignored by Add.
	Due      time.Time `json:"-"` // when this attempt was due
	Occurred time.Time `json:"-"` // when the first attempt of this occurrence was due
	Attempt  int       `json:"-"` // starting at 1
	Delivery int       `json:"-"` // of this attempt; above 1 after a worker was lost with it
}

func (t *Task) repeats() bool { return t.Every > 0 || t.Cron != "" }

// check reports invalid fields of a task before Redis is queried.
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

// start returns the start time in the form of the scripts: a time in ms, or a negative delay.
func (t *Task) start() int64 {
	if t.At.IsZero() {
		return -ceilDelay(t.Delay)
	}
	return ceilMilli(t.At)
}

// ceilMilli returns t as milliseconds since 1970, rounded up.
func ceilMilli(t time.Time) int64 {
	return latest(t.Add(time.Millisecond-1), time.UnixMilli(0)).UnixMilli()
}

// ceilDelay returns d in milliseconds, rounded up, or 0.
func ceilDelay(d time.Duration) int64 {
	if d <= 0 {
		return 0
	}
	return int64((d-1)/time.Millisecond) + 1
}
