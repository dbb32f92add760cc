package rediswheel

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

func TestBadTasks(t *testing.T) {
	q := open(t, embedded(t), Config{MaxBody: 100})
	for _, tt := range []struct {
		name string
		task Task
		want error
	}{
		{"huge key", Task{Key: strings.Repeat("k", MaxKey+1)}, ErrTooLarge},
		{"huge body", Task{Key: "k", Body: make([]byte, 101)}, ErrTooLarge},
		{"huge headers", Task{Key: "k", Header: http.Header{"X": {strings.Repeat("x", maxMeta)}}}, ErrTooLarge},
		{"two times", Task{Key: "k", At: time.Now(), Delay: 1}, ErrBadTask},
		{"a century", Task{Key: "k", Delay: MaxDelay + 1}, ErrBadTask},
		{"a century", Task{Key: "k", At: time.Now().AddDate(101, 0, 0)}, ErrBadTask},
		{"the end of time", Task{Key: "k", At: time.Unix(1<<60, 0)}, ErrBadTask},
		{"policy", Task{Key: "k", OnConflict: 3}, ErrBadTask},
		{"attempts", Task{Key: "k", MaxAttempts: -1}, ErrBadTask},
		{"timeout", Task{Key: "k", Timeout: -1}, ErrBadTask},
		{"every", Task{Key: "k", Every: -1}, ErrBadTask},
		{"every and cron", Task{Key: "k", Every: time.Hour, Cron: "@daily"}, ErrBadTask},
		{"misfire", Task{Key: "k", Every: time.Hour, Misfire: 7}, ErrBadTask},
		{"cron", Task{Key: "k", Cron: "every day"}, ErrBadTask},
		{"cron of six fields", Task{Key: "k", Cron: "* * * * * *"}, ErrBadTask},
		{"never", Task{Key: "k", Cron: "0 0 30 2 *"}, ErrBadTask},
		{"zone", Task{Key: "k", Cron: "@daily", Zone: "Mars/Olympus"}, ErrBadTask},
		{"path as a zone", Task{Key: "k", Cron: "@daily", Zone: "../../etc/passwd"}, ErrBadTask},
		{"zone alone", Task{Key: "k", Zone: "UTC"}, ErrBadTask},
		{"url", Task{Key: "k", URL: "ftp://example.com/"}, ErrBadTask},
		{"url", Task{Key: "k", URL: "http://a b/"}, ErrBadTask},
		{"url without host", Task{Key: "k", URL: "http:///path"}, ErrBadTask},
		{"url that JSON would change", Task{Key: "k", URL: "http://x/\xff"}, ErrBadTask},
		{"header that JSON would change", Task{Key: "k", Header: http.Header{"X": {"caf\xe9"}}}, ErrBadTask},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if err := q.Add(context.Background(), tt.task); !errors.Is(err, tt.want) {
				t.Errorf("Add: %v, want %v", err, tt.want)
			}
		})
	}
	if s, err := q.Stats(context.Background()); err != nil || s.Scheduled != 0 {
		t.Errorf("%+v, %v", s, err)
	}
}

// Any bytes are a key and a body.
func TestOddBytes(t *testing.T) {
	backends(t, func(t *testing.T, client redis.UniversalClient) {
		ctx := context.Background()
		q := open(t, client, Config{})
		odd := []string{"{}", "}{", "{a}b", "\x00", " ", "\n\r\n", "\xff\xfe", "*", "due", strings.Repeat("ä", MaxKey/2), "-1", "1e400", "nan"}
		for _, key := range odd {
			text := strings.ToValidUTF8(key, "?")
			must(t, q.Add(ctx, Task{Key: key, Delay: 100 * 365 * 24 * time.Hour, Body: []byte(key), URL: "http://x/", Header: http.Header{text: {text}}}))
			i, err := q.Get(ctx, key)
			if err != nil || string(i.Body) != key || i.Header[text][0] != text || i.Status != Scheduled || time.Until(i.Due) < MaxDelay-time.Hour {
				t.Errorf("%q: %+v, %v", key, i, err)
			}
		}
		for _, key := range odd {
			if st, err := q.Cancel(ctx, key); st != Cancelled || err != nil {
				t.Errorf("%q: %v, %v", key, st, err)
			}
		}
	})
}

// A time that has passed is now, however long ago it was.
func TestLongAgo(t *testing.T) {
	virtually(t, func(t *testing.T) {
		ctx := context.Background()
		q := open(t, embedded(t), Config{Shards: 1})
		for _, seconds := range []int64{-1, -62135596800, -9300000000000000, -12000000000000000, -1 << 62, math.MinInt64} {
			must(t, q.Add(ctx, Task{Key: "k", At: time.Unix(seconds, 0)}))
			if i, err := q.Get(ctx, "k"); err != nil || time.Since(i.Due).Abs() > time.Second {
				t.Errorf("%d s after 1970: due at %v, %v", seconds, i.Due, err)
			}
		}
	})
}

func TestPolicies(t *testing.T) {
	backends(t, func(t *testing.T, client redis.UniversalClient) {
		ctx := context.Background()
		q := open(t, client, Config{})
		must(t, q.Add(ctx, Task{Key: "k", Delay: time.Hour, Body: []byte("1")}))
		must(t, q.Add(ctx, Task{Key: "k", Body: []byte("2"), OnConflict: Ignore}))
		if err := q.Add(ctx, Task{Key: "k", OnConflict: Fail}); !errors.Is(err, ErrConflict) {
			t.Error(err)
		}
		if i, err := q.Get(ctx, "k"); err != nil || string(i.Body) != "1" {
			t.Errorf("%+v, %v", i, err)
		}
		var batch *BatchError
		err := q.AddBatch(ctx, []Task{{Key: "k", OnConflict: Fail}, {Key: "l"}, {Key: "m", Timeout: -1}, {Key: "l", Delay: time.Hour, Body: []byte("3")}})
		if !errors.As(err, &batch) || !errors.Is(err, ErrConflict) || !errors.Is(err, ErrBadTask) || batch.Errs[1] != nil || batch.Errs[3] != nil {
			t.Error(err)
		}
		if i, err := q.Get(ctx, "l"); err != nil || string(i.Body) != "3" {
			t.Errorf("%+v, %v", i, err)
		}
		must(t, q.Reschedule(ctx, "k", -time.Hour))
		if err := q.Reschedule(ctx, "none", 0); !errors.Is(err, ErrNotFound) {
			t.Error(err)
		}
	})
}

func TestBadConfigs(t *testing.T) {
	client := embedded(t)
	for _, cfg := range []Config{
		{Name: "a{b}"}, {Name: strings.Repeat("n", 65)}, {Shards: -1}, {Shards: 1025}, {MaxBody: -1}, {MaxBody: 1 << 30},
		{Concurrency: -1}, {Lease: time.Millisecond}, {Timeout: -1}, {MaxAttempts: -1}, {MaxDeliveries: -1},
		{Refresh: time.Millisecond}, {Refresh: time.Hour}, {StopTimeout: -1},
	} {
		t.Run(fmt.Sprintf("%+v", cfg), func(t *testing.T) {
			if _, err := Open(context.Background(), client, cfg); !errors.Is(err, ErrConfig) {
				t.Errorf("Open: %v, want %v", err, ErrConfig)
			}
		})
	}
	open(t, client, Config{Shards: 5})
	if q := open(t, client, Config{}); len(q.keys) != 5 {
		t.Errorf("%d shards", len(q.keys))
	}
	if _, err := Open(context.Background(), client, Config{Shards: 6}); !errors.Is(err, ErrConfig) {
		t.Error(err)
	}
	if _, err := Open(context.Background(), redis.NewRing(&redis.RingOptions{}), Config{}); !errors.Is(err, ErrConfig) {
		t.Error(err)
	}
}

func FuzzRecord(f *testing.F) {
	f.Add([]byte("body"), "POST", "http://x/", "@daily", 3)
	f.Add([]byte{0, 255}, "", "", "", 0)
	f.Fuzz(func(t *testing.T, body []byte, method, url, cron string, attempts int) {
		in := Task{Body: body, Method: method, URL: url, Cron: cron, MaxAttempts: attempts}
		record, err := in.record()
		if err != nil {
			return
		}
		var out Task
		if err := out.read(string(record)); err != nil || string(out.Body) != string(body) || out.MaxAttempts != attempts {
			t.Errorf("%+v became %+v, %v", in, out, err)
		}
		_ = out.read(string(body)) // anything may be there; it must not panic
	})
}
