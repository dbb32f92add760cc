package rediswheel

import (
	"testing"
	"time"

	cron "github.com/netresearch/go-cron"
)

// slimZone returns a zone with a POSIX rule instead of a table of clock changes. The files of
// time/tzdata have such a rule for all future years.
func slimZone(t *testing.T, rule string) *time.Location {
	t.Helper()
	version2 := "TZif2" + zoneFile[len("TZif2"):]
	zone, err := time.LoadLocationFromTZData("Slim", []byte(version2+version2+"\n"+rule+"\n"))
	must(t, err)
	return zone
}

// With a POSIX rule, time.ZoneBounds gives every year 365 days. On the last UTC day of a leap year
// it returns an end that has passed.
func TestCronAtEndOfLeapYear(t *testing.T) {
	for _, rule := range []string{"EST5EDT,M3.2.0,M11.1.0", "CET-1CEST,M3.5.0,M10.5.0/3", "AEST-10AEDT,M10.1.0,M4.1.0/3"} {
		zone := slimZone(t, rule)
		for year := 2024; year < 2400; year += 4 {
			date := func(month time.Month, day, hour int) time.Time {
				return time.Date(year, month, day, hour, 0, 0, 0, zone)
			}
			const nextYear = 12 // months
			for _, tt := range []struct {
				cron  string
				from  time.Time
				wants []time.Time
			}{
				{"0 0 1 1 *", date(7, 1, 0), []time.Time{date(1+nextYear, 1, 0), date(1+2*nextYear, 1, 0)}},
				{"0 0 1 1 *", date(12, 31, 12), []time.Time{date(1+nextYear, 1, 0)}},
				{"0 11 31 12 *", date(7, 1, 0), []time.Time{date(12, 31, 11), date(12+nextYear, 31, 11)}},
				{"0 9 4 7 *", date(12, 30, 23), []time.Time{date(7+nextYear, 4, 9)}},
				{"0 9 4 7 *", date(12, 31, 23), []time.Time{date(7+nextYear, 4, 9)}},
				{"0 */12 * * *", date(12, 30, 0), []time.Time{date(12, 30, 12), date(12, 31, 0), date(12, 31, 12), date(12, 32, 0), date(12, 32, 12)}},
			} {
				now := tt.from
				for _, want := range tt.wants {
					got := nextInTime(t, zone, tt.cron, now)
					if !got.Equal(want) {
						t.Errorf("%s in %s after %v: got %v, want %v", tt.cron, rule, now, got, want)
					}
					now = want
				}
			}
		}
	}
}

// nextInTime is nextIn, which must return.
func nextInTime(t *testing.T, zone *time.Location, text string, now time.Time) time.Time {
	t.Helper()
	parsed, err := cronParser.Parse(text)
	must(t, err)
	next := make(chan time.Time, 1)
	go func() { next <- nextIn(zone, parsed.(*cron.SpecSchedule), now) }()
	select {
	case at := <-next:
		return at
	case <-time.After(2 * time.Second):
		t.Fatalf("%q in %v after %v: no result within 20 s", text, zone, now)
		return time.Time{}
	}
}
