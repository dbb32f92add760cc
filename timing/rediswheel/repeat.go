package rediswheel

import (
	"slices"
	"strings"
	"time"

	cron "github.com/netresearch/go-cron"
)

// cronParser reads five fields, as crontab has them: if both days are restricted, either is enough.
var cronParser = cron.MustNewParser(cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow | cron.DowOrDom | cron.Descriptor)

// next returns the first occurrence that is after now, given one that was.
func (t *Task) next(occurrence, now time.Time) (time.Time, error) {
	if t.Every > 0 {
		every := time.Duration(ceilDelay(t.Every)) * time.Millisecond
		next := occurrence.Add(every)
		for !next.After(now) { // more than once if centuries have passed: Sub tells of 292 years
			next = next.Add(max(now.Sub(next)/every, 1) * every)
		}
		return next, nil
	}
	if strings.HasPrefix(t.Cron, "CRON_TZ=") || strings.HasPrefix(t.Cron, "TZ=") {
		return time.Time{}, wrap(ErrBadTask, "the Cron %q of %q names a zone, which is for Task.Zone", t.Cron, t.Key)
	}
	zone, err := time.LoadLocation(t.Zone)
	if err != nil || t.Zone == "Local" {
		return time.Time{}, wrap(ErrBadTask, "the Zone %q of %q is not known here: want a name as Europe/Berlin; "+
			"where the system has no zone files, package main imports time/tzdata", t.Zone, t.Key)
	}
	parsed, err := cronParser.Parse(t.Cron)
	if err != nil {
		return time.Time{}, wrap(ErrBadTask, "the Cron %q of %q: %v", t.Cron, t.Key, err)
	}
	var next time.Time
	if fields, ok := parsed.(*cron.SpecSchedule); ok {
		next = nextIn(zone, fields, latest(now, occurrence))
	} else { // @every
		next = parsed.Next(latest(now, occurrence))
	}
	if next.IsZero() {
		return next, wrap(ErrBadTask, "%q: the Cron %q never comes", t.Key, t.Cron)
	}
	return next, nil
}

// nextIn returns the first occurrence after now in a zone, or the zero Time. The parser's own Next
// is asked in UTC, with what the zone's clocks show in place of the time.
//
// Between two changes of its clocks a zone has one offset to UTC. Where clocks are put forward,
// what they do not show counts by the offset before the change: it happens later, by as much as the
// clocks were put forward. Where they are put back, what they show twice happens the first time
// only, unless the hour is open: then each hour that passes is meant, whatever it is called.
func nextIn(zone *time.Location, s *cron.SpecSchedule, now time.Time) time.Time {
	const instant, allHours = time.Nanosecond, 1<<24 - 1
	s.Location = time.UTC
	for at, years := now, 0; years < 100; years = at.Year() - now.Year() { // at is in the period that is looked at
		at = at.In(zone)
		start, end := at.ZoneBounds()
		offset, from, next := offsetAt(at), now, time.Time{}
		if !start.IsZero() {
			from = latest(now, start.Add(-instant))
			switch before := offsetAt(start.Add(-instant)); {
			case before < offset: // from start + before to start + offset: no clock shows that
				if shown := s.Next(from.UTC().Add(before)); shown.Before(start.UTC().Add(offset)) && !shown.IsZero() {
					next = shown.Add(-before)
				}
			case before > offset && s.Hour&allHours != allHours: // from start + offset to start + before: clocks show that again
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
		at = end
	}
	return time.Time{}
}

// offsetAt is how far clocks are ahead of UTC.
func offsetAt(t time.Time) time.Duration {
	_, seconds := t.Zone()
	return time.Duration(seconds) * time.Second
}

func latest(a, b time.Time) time.Time { return slices.MaxFunc([]time.Time{a, b}, time.Time.Compare) }
