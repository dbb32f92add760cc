package rediswheel

import (
	"errors"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	cron "github.com/netresearch/go-cron"

	"github.com/loopwheel/loopwheel/internal/testkit"
)

// An expression has no zone of its own.
func TestCronZoneInExpression(t *testing.T) {
	for _, text := range []string{"CRON_TZ=Europe/Berlin 0 0 * * *", "TZ=UTC @daily"} {
		task := Task{Key: "k", Cron: text}
		if err := task.check(0); !errors.Is(err, ErrBadTask) || !strings.Contains(err.Error(), "Task.Zone") {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// A naive model of the rule, minute by minute: what clocks show from before a change until after
// it. In the order of the parser's fields, each is a mask of bits.
func naive(spec *cron.SpecSchedule, zone *time.Location, from, to time.Time) (all []time.Time) {
	hourly := bits.OnesCount64(spec.Hour&(1<<24-1)) == 24
	matches := func(shown time.Time) bool {
		day := spec.Dom&(1<<shown.Day()) != 0
		week := spec.Dow&(1<<int(shown.Weekday())) != 0
		days := day && week
		if spec.Dom>>63 == 0 && spec.Dow>>63 == 0 { // both are restricted
			days = day || week
		}
		return spec.Minute&(1<<shown.Minute()) != 0 && spec.Hour&(1<<shown.Hour()) != 0 && spec.Month&(1<<int(shown.Month())) != 0 && days
	}
	const layout = "2006-01-02 15:04"
	shown := make(map[string]bool)
	var last time.Time // what the clock showed a minute ago, as UTC
	for t := from; t.Before(to); t = t.Add(time.Minute) {
		here := t.In(zone)
		_, offset := here.Zone()
		clock := t.UTC().Add(time.Duration(offset) * time.Second)
		due := matches(clock) && (hourly || !shown[clock.Format(layout)])
		shown[clock.Format(layout)] = true
		if due {
			all = append(all, t)
		}
		if !last.IsZero() {
			for skipped := last.Add(time.Minute); skipped.Before(clock); skipped = skipped.Add(time.Minute) {
				if matches(skipped) { // by the offset before: as long after the change as it is after the gap's start
					all = append(all, t.Add(skipped.Sub(last)-time.Minute))
				}
			}
		}
		last = clock
	}
	slices.SortFunc(all, time.Time.Compare)
	return slices.CompactFunc(all, time.Time.Equal)
}

// All zones' changes of ten years, and for each some expressions that come close to it.
func TestCronModel(t *testing.T) {
	random := rand.New(rand.NewPCG(testkit.Seed(t, 1), 3))
	zones := zoneNames(t)
	changes := 0
	for _, name := range zones {
		zone, err := time.LoadLocation(name)
		must(t, err)
		end := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
		for at := time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC); ; {
			_, change := bounds(at.In(zone))
			if change.IsZero() || change.After(end) {
				break
			}
			at = change
			if os.Getenv("LOOPWHEEL_SLOW") == "" && random.IntN(10) > 0 {
				continue
			}
			changes++
			compareCron(t, random, name, zone, change)
		}
	}
	t.Logf("%d changes of %d zones", changes, len(zones))
	if changes < 300 {
		t.Errorf("only %d changes were looked at", changes)
	}
}

// compareCron compares the occurrences around a change with the model's.
func compareCron(t *testing.T, random *rand.Rand, name string, zone *time.Location, change time.Time) {
	before := change.Add(-time.Second).In(zone)
	h := func(d int) int { return (before.Hour() + d + 24) % 24 }
	tomorrow := before.Add(time.Minute)
	for _, text := range []string{
		fmt.Sprintf("%d %d * * *", random.IntN(60), h(random.IntN(4)-1)),
		fmt.Sprintf("*/15 %d * * *", h(random.IntN(3))),
		fmt.Sprintf("*/%d %d-%d * * *", 7+random.IntN(20), min(h(0), h(2)), max(h(0), h(2))),
		fmt.Sprintf("%d * * * *", random.IntN(60)),
		fmt.Sprintf("%d */2 * * *", random.IntN(60)),
		fmt.Sprintf("0 %d %d %d *", h(1), tomorrow.Day(), int(tomorrow.Month())),
		fmt.Sprintf("30 %d * * %d", h(random.IntN(3)-1), int(tomorrow.Weekday())),
		fmt.Sprintf("%d %d %d * %d", random.IntN(60), h(1), before.Day(), random.IntN(7)),
		"@daily", "@hourly",
	} {
		task := Task{Key: "k", Cron: text, Zone: name}
		parsed, err := cronParser.Parse(text)
		must(t, err)
		from, to := change.Add(-5*time.Hour).Truncate(time.Minute), change.Add(5*time.Hour).Truncate(time.Minute)
		want := naive(parsed.(*cron.SpecSchedule), zone, from.Add(-24*time.Hour), to)
		for len(want) > 0 && want[0].Before(from) {
			want = want[1:]
		}
		var got []time.Time
		for now := from.Add(-time.Nanosecond); ; {
			next, err := task.next(now, now)
			if err != nil || !next.Before(to) {
				break
			}
			got, now = append(got, next), next
		}
		for len(want) > 0 && !want[len(want)-1].Before(to) {
			want = want[:len(want)-1]
		}
		if !slices.EqualFunc(got, want, time.Time.Equal) {
			t.Errorf("%q in %s around %v: %v, the model says %v", text, name, change, got, want)
		}
	}
}

// zoneNames are those that the database of this machine or of Go has.
func zoneNames(t *testing.T) []string {
	var names []string
	for _, region := range []string{"Africa", "America", "America/Argentina", "America/Indiana", "America/Kentucky", "America/North_Dakota",
		"Antarctica", "Asia", "Atlantic", "Australia", "Europe", "Indian", "Pacific"} {
		files, err := os.ReadDir("/usr/share/zoneinfo/" + region)
		if err != nil {
			t.Skipf("this machine has no list of zones: %v", err)
		}
		for _, f := range files {
			if !f.IsDir() {
				names = append(names, region+"/"+f.Name())
			}
		}
	}
	return names
}
