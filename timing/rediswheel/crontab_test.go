package rediswheel

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// As in crontab, a day has to match both day fields if one of them begins with an asterisk, and
// otherwise one of them.
func TestCronDayFields(t *testing.T) {
	from := at(t, "UTC", "2026-03-01 12:00") // a Sunday
	for text, want := range map[string]string{
		"0 0 */2 * 3":   "03-11 03-25 04-01", // Wednesdays whose day is odd
		"0 0 1-7 * */2": "03-03 03-05 03-07", // Tuesday, Thursday, Saturday
		"0 0 *,5 * 3":   "03-04 03-11 03-18",
		"0 0 13 * 3":    "03-04 03-11 03-13",
		"0 0 * * 3":     "03-04 03-11 03-18",
		"0 0 */10 * *":  "03-11 03-21 03-31",
	} {
		t.Run(text, func(t *testing.T) {
			task, now, got := Task{Key: "k", Cron: text}, from, ""
			for range 3 {
				next, err := task.next(now, now)
				must(t, err)
				got += next.Format(" 01-02")
				now = next
			}
			if got != " "+want {
				t.Errorf("it comes on%s, want %s", got, want)
			}
		})
	}
}

// @every would be rounded to seconds and drift: Task.Every does neither.
func TestCronEveryIsRefused(t *testing.T) {
	for _, text := range []string{"@every 1.5s", "@every 2s", "@every 1h"} {
		task := Task{Key: "k", Cron: text}
		if err := task.check(0); !errors.Is(err, ErrBadTask) {
			t.Errorf("Cron %q: error %v, want ErrBadTask", text, err)
		}
	}
}

// A batch of tasks with Cron asks Redis once for the time.
func TestCronBatchAsksOnce(t *testing.T) {
	client := embedded(t)
	q := open(t, client, Config{})
	tasks := make([]Task, 250)
	for i := range tasks {
		tasks[i] = Task{Key: fmt.Sprint(i), Cron: "@daily"}
	}
	var times int
	client.AddHook(counter{"time", &times})
	must(t, q.AddBatch(context.Background(), tasks))
	if times != 1 {
		t.Errorf("Redis was asked for the time %d times, want 1", times)
	}
	if i, err := q.Get(context.Background(), "249"); err != nil || time.Until(i.Due) > 25*time.Hour {
		t.Errorf("the last one is due at %v, %v", i.Due, err)
	}
}

// A counter is a hook that counts commands of a name.
type counter struct {
	name string
	n    *int
}

func (c counter) DialHook(next redis.DialHook) redis.DialHook { return next }

func (c counter) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() == c.name {
			*c.n++
		}
		return next(ctx, cmd)
	}
}

func (c counter) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
