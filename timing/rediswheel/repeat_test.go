package rediswheel

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/internal/testkit"
)

// at returns a time of a zone.
func at(t *testing.T, zone, text string) time.Time {
	t.Helper()
	loc, err := time.LoadLocation(zone)
	must(t, err)
	when, err := time.ParseInLocation("2006-01-02 15:04", text, loc)
	must(t, err)
	return when
}

// Occurrences over changes of the clock. An hour that is left out does not lose one: half past two
// is at half past three then. An hour that comes twice has one. The last rows are reports of others,
// whose days, weeks and years were lost.
func TestCronChangesOfClocks(t *testing.T) {
	for _, tt := range []struct {
		cron, zone, from string
		want             []string // in UTC
	}{
		{"30 2 * * *", "Europe/Berlin", "2026-03-28 00:00", []string{"03-28 01:30", "03-29 01:30", "03-30 00:30"}},
		{"30 2 * * *", "Europe/Berlin", "2026-10-24 00:00", []string{"10-24 00:30", "10-25 00:30", "10-26 01:30"}},
		{"30 * * * *", "Europe/Berlin", "2026-10-25 01:00", []string{"10-24 23:30", "10-25 00:30", "10-25 01:30", "10-25 02:30"}},
		{"0 9 * * *", "America/New_York", "2026-03-07 12:00", []string{"03-08 13:00", "03-09 13:00"}},
		{"0 0 * * *", "Asia/Kolkata", "2026-01-01 12:00", []string{"01-01 18:30", "01-02 18:30"}},
		{"0 12 13 * FRI", "UTC", "2026-02-10 00:00", []string{"02-13 12:00", "02-20 12:00", "02-27 12:00", "03-06 12:00", "03-13 12:00"}},
		{"@daily", "", "2026-12-31 00:00", []string{"01-01 00:00", "01-02 00:00"}},
		{"0 0 29 2 *", "", "2026-03-01 00:00", []string{"02-29 00:00"}},
		{"0 0 * * *", "America/Santiago", "2026-09-05 12:00", []string{"09-06 04:00", "09-07 03:00"}},
		{"0 0 * * 0", "America/Santiago", "2026-09-05 12:00", []string{"09-06 04:00", "09-13 03:00"}},
		{"0 0 6 9 *", "America/Santiago", "2026-09-05 12:00", []string{"09-06 04:00"}},
		{"0 0 * * *", "Africa/Cairo", "2026-04-23 12:00", []string{"04-23 22:00", "04-24 21:00"}},
		{"0 0 * * *", "Asia/Beirut", "2026-03-28 12:00", []string{"03-28 22:00", "03-29 21:00"}},
		{"0 0 * * *", "America/Havana", "2026-03-07 12:00", []string{"03-08 05:00", "03-09 04:00"}},
		{"0 2 * * *", "Australia/Lord_Howe", "2026-10-03 12:00", []string{"10-03 15:30", "10-04 15:00"}},
		{"*/15 2 * * *", "Europe/Berlin", "2026-03-28 12:00", []string{"03-29 01:00", "03-29 01:15", "03-29 01:30", "03-29 01:45", "03-30 00:00"}},
		{"0 12 * * *", "Pacific/Apia", "2011-12-28 13:00", []string{"12-29 22:00", "12-30 22:00", "12-31 22:00"}}, // it had no 30th
	} {
		t.Run(tt.cron+" in "+tt.zone+" from "+tt.from, func(t *testing.T) {
			task := Task{Key: "k", Cron: tt.cron, Zone: tt.zone}
			now := at(t, tt.zone, tt.from)
			for _, want := range tt.want {
				next, err := task.next(now, now)
				must(t, err)
				if got := next.UTC().Format("01-02 15:04"); got != want {
					t.Errorf("after %v: got %s, want %s", now, got, want)
				}
				now = next
			}
		})
	}
}

// The 29th of February comes after eight years if a year such as 2100 is between, and on a given
// weekday after up to 40. That is not never. Its 30th is.
func TestCronOfLeapDays(t *testing.T) {
	for _, zone := range []string{"UTC", "Europe/Berlin"} {
		loc, err := time.LoadLocation(zone)
		must(t, err)
		for _, cron := range []string{"0 0 29 2 *", "0 0 29 2 */7"} { // the second on Sundays
			for year := 2000; year < 2400; year += 2 {
				now := time.Date(year, 3, 1, 0, 0, 0, 0, loc)
				want := time.Date(year+1, 2, 29, 0, 0, 0, 0, loc)
				for want.Day() != 29 || want.Weekday() != time.Sunday && strings.HasSuffix(cron, "7") {
					want = time.Date(want.Year()+1, 2, 29, 0, 0, 0, 0, loc)
				}
				task := Task{Key: "k", Cron: cron, Zone: zone}
				if got, err := task.next(now, now); err != nil || !got.Equal(want) {
					t.Errorf("%s in %s after %v: got %v, %v; want %v", cron, zone, now, got, err, want)
				}
			}
		}
		never := Task{Key: "k", Cron: "0 0 30 2 *", Zone: zone}
		if got, err := never.next(time.Time{}, time.Now()); !errors.Is(err, ErrBadTask) {
			t.Errorf("the 30th of February in %s: got %v, %v; want ErrBadTask", zone, got, err)
		}
	}
}

// A period counts from the first occurrence and does not drift; the handler's time does not matter
// as long as it is less.
func TestEvery(t *testing.T) {
	virtually(t, func(t *testing.T) {
		ctx, began := context.Background(), time.Now()
		q := open(t, embedded(t), Config{Shards: 2, Refresh: time.Minute})
		r := newRecorder()
		r.fail = func(task Task) error {
			late := time.Since(task.Occurred)
			if late < 0 || late > 5*time.Millisecond {
				t.Errorf("%v late", late)
			}
			testkit.Block(2 * time.Second)
			return nil
		}
		must(t, q.Add(ctx, Task{Key: "tick", Every: 7 * time.Second}))
		stop := start(t, q, r)
		testkit.Pass(70*time.Second + 500*time.Millisecond)
		if st, err := q.Cancel(ctx, "tick"); st != Running || err != nil {
			t.Error(st, err)
		}
		testkit.Pass(time.Minute)
		must(t, stop())
		got := r.got()
		if len(got) != 10 {
			t.Fatalf("%d occurrences", len(got))
		}
		for i, task := range got {
			if d := task.Occurred.Sub(began); d < time.Duration(i+1)*7*time.Second || d > time.Duration(i+1)*7*time.Second+2*time.Millisecond {
				t.Errorf("occurrence %d was %v from the start", i, d)
			}
		}
		if _, err := q.Get(ctx, "tick"); !errors.Is(err, ErrNotFound) {
			t.Error(err)
		}
	})
}

// A period that is not of whole milliseconds is rounded up to them; then it does not drift, either.
// A beginning may be any time ago.
func TestEveryRounded(t *testing.T) {
	third := Task{Key: "k", Every: time.Second / 3}
	first := time.UnixMilli(1_760_000_000_000)
	last := first
	for range 1000 {
		next, err := third.next(last, last)
		must(t, err)
		last = time.UnixMilli(ceilMilli(next)) // as Redis has it
	}
	missed, err := third.next(first, last.Add(-1))
	must(t, err)
	if d := last.Sub(first); d != 1000*334*time.Millisecond || !missed.Equal(last) {
		t.Errorf("1,000 periods are %v, or %v if they were missed", d, missed.Sub(first))
	}
	daily, now := Task{Key: "k", Every: 24 * time.Hour}, time.Date(2026, 3, 10, 12, 0, 0, 0, time.UTC)
	next, err := daily.next(time.Date(1, 1, 1, 3, 0, 0, 0, time.UTC), now)
	if want := time.Date(2026, 3, 11, 3, 0, 0, 0, time.UTC); err != nil || !next.Equal(want) {
		t.Errorf("daily since the year 1: %v, %v; want %v", next, err, want)
	}
}

// Occurrences that were missed run once, or not at all.
func TestMisfire(t *testing.T) {
	virtually(t, func(t *testing.T) {
		ctx := context.Background()
		q := open(t, embedded(t), Config{Shards: 2, Refresh: time.Minute})
		must(t, q.Add(ctx, Task{Key: "once", Every: time.Minute}))
		must(t, q.Add(ctx, Task{Key: "skip", Every: time.Minute, Misfire: Skip}))
		testkit.Pass(10*time.Minute + 30*time.Second)
		r := newRecorder()
		stop := start(t, q, r)
		testkit.Pass(time.Second)
		if got := r.got(); len(got) != 1 || got[0].Key != "once" {
			t.Errorf("%+v", got)
		}
		testkit.Pass(time.Minute)
		must(t, stop())
		if n := len(r.got()); n != 3 || q.Local().Skipped != 1 {
			t.Errorf("%d runs, %d skipped", n, q.Local().Skipped)
		}
	})
}

// An occurrence that is given up does not end the series.
func TestRepeatFails(t *testing.T) {
	virtually(t, func(t *testing.T) {
		ctx := context.Background()
		q := open(t, embedded(t), Config{Shards: 2, Refresh: time.Minute, MaxAttempts: 2, OnError: func(Task, error) {}})
		must(t, q.Add(ctx, Task{Key: "hourly", Cron: "0 * * * *"}))
		r := newRecorder()
		r.fail = func(Task) error { return errors.New("no") }
		stop := start(t, q, r)
		testkit.Pass(3*time.Hour + time.Minute)
		must(t, stop())
		if n := len(r.got()); n != 6 {
			t.Errorf("%d attempts", n)
		}
		i, err := q.Get(ctx, "hourly")
		must(t, err)
		testkit.Want(t, "i.Status", i.Status, Scheduled)
		testkit.Want(t, "i.Due.UTC().Minute()", i.Due.UTC().Minute(), 0)
	})
}

// A chain, as docs/delays.md has it: a handler adds the next task before it returns nil. If it runs
// again, as its worker was lost or it failed after that, the next one still runs once. A task
// that is cancelled while it runs still has its next.
func TestChain(t *testing.T) {
	virtually(t, func(t *testing.T) {
		ctx := context.Background()
		q := open(t, embedded(t), Config{Shards: 2, OnError: func(Task, error) {}})
		r := newRecorder()
		r.fail = func(task Task) error {
			if task.Key == "last" {
				return nil
			}
			must(t, q.Add(ctx, Task{Key: "last", Delay: 10 * time.Second, OnConflict: Ignore}))
			testkit.Block(time.Second)
			if task.Key == "fails" && task.Attempt == 1 {
				return errors.New("after the next was added")
			}
			return nil
		}
		stop := start(t, q, r)
		for _, first := range []string{"done", "fails", "cancelled"} {
			before := len(r.got())
			must(t, q.Add(ctx, Task{Key: first}))
			testkit.Pass(500 * time.Millisecond)
			if first == "cancelled" {
				if st, err := q.Cancel(ctx, first); st != Running || err != nil {
					t.Error(st, err)
				}
			}
			testkit.Pass(time.Minute)
			last := 0
			for _, task := range r.got()[before:] {
				if task.Key == "last" {
					last++
				}
			}
			if last != 1 {
				t.Errorf("%s: the next ran %d times", first, last)
			}
		}
		must(t, stop())
	})
}
