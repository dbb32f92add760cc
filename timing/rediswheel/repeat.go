package rediswheel

import (
	"slices"
	"strings"
	"time"

	cron "github.com/netresearch/go-cron"
)

// cronParser parses five fields as in crontab: either day matches, unless one of the day fields
// begins with an asterisk.
var cronParser = cron.MustNewParser(cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow | cron.DowOrDom | cron.Descriptor).
	WithMaxSearchYears(searchYears)

// searchYears is how far away the next occurrence may be. The 29th of February on a given weekday may
// be 40 years away.
const searchYears = 50

// next returns the first occurrence after now, given an earlier one.
func (t *Task) next(occurrence, now time.Time) (time.Time, error) {
	if t.Every > 0 {
		every := time.Duration(ceilDelay(t.Every)) * time.Millisecond
		next := occurrence.Add(every)
		for !next.After(now) { // more than once if centuries have passed: Sub is limited to 292 years
			next = next.Add(max(now.Sub(next)/every, 1) * every)
		}
		return next, nil
	}
	if strings.HasPrefix(t.Cron, "CRON_TZ=") || strings.HasPrefix(t.Cron, "TZ=") {
		return time.Time{}, wrap(ErrBadTask, "the Cron %q of %q names a zone, which is for Task.Zone", t.Cron, t.Key)
	}
	zone, err := time.LoadLocation(t.Zone)
	if err != nil || t.Zone == "Local" {
		return time.Time{}, wrap(ErrBadTask, "the Zone %q of %q is not known here: want a name such as Europe/Berlin; "+
			"if the system has no zone files, import time/tzdata in package main", t.Zone, t.Key)
	}
	parsed, err := cronParser.Parse(t.Cron)
	if err != nil {
		return time.Time{}, wrap(ErrBadTask, "the Cron %q of %q: %v", t.Cron, t.Key, err)
	}
	fields, ok := parsed.(*cron.SpecSchedule)
	if !ok {
		return time.Time{}, wrap(ErrBadTask, "the Cron %q of %q is a period, which is for Task.Every", t.Cron, t.Key)
	}
	if f := strings.Fields(t.Cron); len(f) == 5 && (f[2][0] == '*' || f[4][0] == '*') {
		fields.DowOrDom = false
	}
	next := nextIn(zone, fields, latest(now, occurrence))
	if next.IsZero() {
		return next, wrap(ErrBadTask, "%q: the Cron %q never comes", t.Key, t.Cron)
	}
	return next, nil
}

// nextIn returns the first occurrence after now in a zone, or the zero Time. It calls the parser's
// own Next in UTC, with the local time in place of UTC.
//
// Between two clock changes a zone has one offset to UTC. If clocks are put forward, a skipped
// local time counts by the offset before the change: it occurs later, by the size of the change. If
// clocks are put back, a repeated local time counts only the first time. But if the hour is
// unrestricted, every elapsed hour counts.
func nextIn(zone *time.Location, s *cron.SpecSchedule, now time.Time) time.Time {
	const instant, allHours = time.Nanosecond, 1<<24 - 1
	const margin = 48 * time.Hour // more than offsets differ
	s.Location = time.UTC
	for at, years := now, 0; years <= searchYears; years = at.Year() - now.Year() { // at is in the examined period
		at = at.In(zone)
		start, end := bounds(at)
		offset, from, next := offsetAt(at), now, time.Time{}
		if !start.IsZero() {
			from = latest(now, start.Add(-instant))
			switch before := offsetAt(start.Add(-instant)); {
			case before < offset: // from start + before to start + offset: skipped
				if shown := s.Next(from.UTC().Add(before)); shown.Before(start.UTC().Add(offset)) && !shown.IsZero() {
					next = shown.Add(-before)
				}
			case before > offset && s.Hour&allHours != allHours: // from start + offset to start + before: twice
				from = latest(from, start.Add(before-offset-instant))
			}
		}
		shown := s.Next(from.UTC().Add(offset))
		if shown.IsZero() {
			return next
		}
		if regular := shown.Add(-offset); next.IsZero() || regular.Before(next) {
			next = regular
		}
		if end.IsZero() || next.Before(end) {
			return next
		}
		// No local time between from and shown matches, so the periods until then are left out, but
		// for one that begins soon: it may repeat times before from.
		if at = end; end.Sub(now) > margin {
			at = latest(end, next.Add(-margin))
		}
	}
	return time.Time{}
}

// bounds returns the start and the end of the period around t in which local time has one offset to
// UTC, or in which Go looks for it at once. The end is after t, or zero. Where a zone has a POSIX rule
// instead of a table, ZoneBounds gives every year 365 days in UTC: on the last day of a leap year it
// returns the end of the day before.
func bounds(t time.Time) (start, end time.Time) {
	start, end = t.ZoneBounds()
	if !end.IsZero() && !end.After(t) {
		end = time.Date(t.UTC().Year()+1, 1, 1, 0, 0, 0, 0, time.UTC)
	}
	return start, end
}

// offsetAt returns the offset of local time from UTC.
func offsetAt(t time.Time) time.Duration {
	_, seconds := t.Zone()
	return time.Duration(seconds) * time.Second
}

func latest(a, b time.Time) time.Time { return slices.MaxFunc([]time.Time{a, b}, time.Time.Compare) }
