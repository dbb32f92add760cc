package rediswheel

import (
	"sync"
	"time"

	cron "github.com/netresearch/go-cron"
)

// cronParser reads five fields, as crontab has them: if both days are restricted, either is enough.
var cronParser = cron.MustNewParser(cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow | cron.DowOrDom | cron.Descriptor)

func (t *Task) checkRepeat() error {
	switch {
	case t.Every < 0 || t.Every > 0 && t.Every < time.Millisecond:
		return badTask("%q has Every %v, of at least 1ms", t.Key, t.Every)
	case t.Every > MaxDelay:
		return badTask("%q has an Every of more than 100 years", t.Key)
	case t.Every > 0 && t.Cron != "":
		return badTask("%q has both Every and Cron", t.Key)
	case t.Misfire < RunOnce || t.Misfire > Skip:
		return badTask("%q has Misfire %d", t.Key, t.Misfire)
	case t.Zone != "" && t.Cron == "":
		return badTask("%q has a Zone, but no Cron that it would apply to", t.Key)
	case t.Cron == "":
		return nil
	}
	now := time.Now()
	_, err := t.next(now, now)
	return err
}

// next returns the first occurrence that is after now, given one that was.
func (t *Task) next(occurrence, now time.Time) (time.Time, error) {
	if t.Every > 0 {
		missed := max(now.Sub(occurrence), 0) / t.Every
		return occurrence.Add((missed + 1) * t.Every), nil
	}
	schedule, zone, err := t.schedule()
	if err != nil {
		return time.Time{}, err
	}
	if now.Before(occurrence) {
		now = occurrence
	}
	next := schedule.Next(now.In(zone))
	for !next.IsZero() && again(next) && !hourly(schedule) {
		next = schedule.Next(next)
	}
	if next.IsZero() {
		return next, badTask("%q: the Cron %q never comes", t.Key, t.Cron)
	}
	return next, nil
}

// again reports whether the clocks have shown this time before, because they were put back since:
// what is to happen at half past two happens once on that day, too.
func again(t time.Time) bool {
	const layout = "2006-01-02 15:04:05"
	for _, d := range []time.Duration{30 * time.Minute, time.Hour, 2 * time.Hour} {
		if t.Add(-d).Format(layout) == t.Format(layout) {
			return true
		}
	}
	return false
}

// hourly reports whether an expression leaves the hour open: then it means each hour that passes,
// whatever it is called.
func hourly(s cron.Schedule) bool {
	spec, ok := s.(*cron.SpecSchedule)
	const allHours = 1<<24 - 1
	return !ok || spec.Hour&allHours == allHours
}

// A parsed expression and its zone are kept: parsing one takes longer than all else that a
// repetition needs.
type scheduleKey struct{ cron, zone string }

type scheduleValue struct {
	schedule cron.Schedule
	zone     *time.Location
}

const maxSchedules = 4096

var (
	schedulesLock sync.Mutex
	schedules     = make(map[scheduleKey]scheduleValue)
)

func (t *Task) schedule() (cron.Schedule, *time.Location, error) {
	schedulesLock.Lock()
	defer schedulesLock.Unlock()
	key := scheduleKey{t.Cron, t.Zone}
	if v, ok := schedules[key]; ok {
		return v.schedule, v.zone, nil
	}
	zone, err := time.LoadLocation(t.Zone)
	if err != nil || t.Zone == "Local" {
		return nil, nil, badTask("the Zone %q of %q is not known here: want a name as Europe/Berlin", t.Zone, t.Key)
	}
	schedule, err := cronParser.Parse(t.Cron)
	if err != nil {
		return nil, nil, badTask("the Cron %q of %q: %v", t.Cron, t.Key, err)
	}
	if spec, ok := schedule.(*cron.SpecSchedule); ok {
		spec.Location = zone
	}
	if len(schedules) >= maxSchedules {
		clear(schedules)
	}
	schedules[key] = scheduleValue{schedule, zone}
	return schedule, zone, nil
}
