package loopslog_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/loopslog"
	"github.com/loopwheel/loopwheel/loop/looptest"
)

// kept is a slog.Handler that keeps its records.
type kept struct {
	level   slog.LevelVar
	records []slog.Record
	asked   int
	err     error
}

func (k *kept) Enabled(_ context.Context, l slog.Level) bool { k.asked++; return l >= k.level.Level() }
func (k *kept) WithAttrs([]slog.Attr) slog.Handler           { return k }
func (k *kept) WithGroup(string) slog.Handler                { return k }

func (k *kept) Handle(_ context.Context, r slog.Record) error {
	k.records = append(k.records, r)
	return k.err
}

// last returns the last record and its attributes.
func (k *kept) last(t *testing.T) (slog.Record, map[string]slog.Value) {
	t.Helper()
	if len(k.records) == 0 {
		t.Fatal("nothing was logged")
	}
	r := k.records[len(k.records)-1]
	attrs := make(map[string]slog.Value)
	r.Attrs(func(a slog.Attr) bool { attrs[a.Key] = a.Value; return true })
	return r, attrs
}

func TestFields(t *testing.T) {
	k := new(kept)
	log := loopslog.Logger(k)
	inner := zerolog.Dict().Str("name", "x").Dict("deep", zerolog.Dict().Int("n", 1))
	log.Info().Str("plain", "a").Str("escaped", "a\"b\\c\n\t\x01\u2028é😀/").Str("", "").
		Int64("least", math.MinInt64).Uint64("most", math.MaxUint64).Float64("half", 0.5).Float64("nan", math.NaN()).
		Bool("yes", true).Bool("no", false).Interface("nothing", nil).Err(errors.New("it \"broke\"")).
		Dur("took", 1500*time.Millisecond).Time("at", time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)).
		Dict("group", inner).Strs("list", []string{"a]", "b\""}).Interface("struct", struct{ A int }{7}).
		Msg("mes\"sage")
	r, got := k.last(t)
	if r.Message != `mes"sage` || r.Level != slog.LevelInfo || time.Since(r.Time) > time.Minute {
		t.Errorf("the record is %+v", r)
	}
	want := map[string]any{
		"plain": "a", "escaped": "a\"b\\c\n\t\x01\u2028é😀/", "": "", "least": int64(math.MinInt64), "most": uint64(math.MaxUint64),
		"half": 0.5, "nan": "NaN", "yes": true, "no": false, "nothing": nil, "error": `it "broke"`, "took": int64(1500),
		"at": "2026-01-02T03:04:05Z", "list": json.RawMessage(`["a]","b\""]`),
		"group":  []slog.Attr{slog.String("name", "x"), {Key: "deep", Value: slog.GroupValue(slog.Int64("n", 1))}},
		"struct": []slog.Attr{slog.Int64("A", 7)},
	}
	if len(got) != len(want) {
		t.Errorf("%d attributes: %v", len(got), got)
	}
	for key, value := range want {
		if !reflect.DeepEqual(got[key].Any(), value) {
			t.Errorf("%q is %#v, want %#v", key, got[key].Any(), value)
		}
	}
}

// What With adds is in each record, and a Timestamp is the record's own.
func TestContextAndTime(t *testing.T) {
	k := new(kept)
	log := loopslog.Logger(k).With().Timestamp().Uint64("conn", 7).Logger()
	log.Warn().Msg("x")
	r, got := k.last(t)
	if now := time.Now().Truncate(time.Second); r.Time.Before(now.Add(-time.Minute)) || r.Time.Nanosecond() != 0 || len(got) != 1 || got["conn"].Int64() != 7 {
		t.Errorf("at %v with %v", r.Time, got)
	}
	log.Log().Time(zerolog.TimestampFieldName, time.Unix(1, 0)).Send() // a second one is no time of the record
	if _, got := k.last(t); len(got) != 2 {
		t.Errorf("got %v", got)
	}
}

// The handler says which levels it wants, also when it changes its mind, before fields are made.
func TestLevels(t *testing.T) {
	k := new(kept)
	log := loopslog.Logger(k)
	for level, want := range map[zerolog.Level]slog.Level{
		zerolog.TraceLevel: loopslog.LevelTrace, zerolog.DebugLevel: slog.LevelDebug, zerolog.InfoLevel: slog.LevelInfo,
		zerolog.NoLevel: slog.LevelInfo, zerolog.WarnLevel: slog.LevelWarn, zerolog.ErrorLevel: slog.LevelError,
		zerolog.Level(9): slog.LevelError + 24,
	} {
		k.level.Set(want)
		log.WithLevel(level).Msg("on")
		if r, _ := k.last(t); r.Level != want || r.Message != "on" {
			t.Errorf("%v became %v", level, r.Level)
		}
		k.level.Set(want + 1)
		n := len(k.records)
		if e := log.WithLevel(level); e.Enabled() || len(k.records) != n {
			t.Errorf("%v is on, though the handler does not want it", level)
		}
	}
	k.level.Set(slog.LevelInfo)
	n := len(k.records)
	own := log.Sample(&zerolog.BasicSampler{N: 1})
	own.Debug().Msg("off")
	if len(k.records) != n {
		t.Error("a Logger with a sampler of its own logs what the handler does not want")
	}
	func() {
		defer func() { _ = recover() }()
		log.Panic().Msg("p")
	}()
	if r, _ := k.last(t); r.Level != loopslog.LevelPanic {
		t.Errorf("a panic became %v", r.Level)
	}
}

// A line that is no JSON becomes the message, and is not lost.
func TestOtherLines(t *testing.T) {
	k := new(kept)
	log := loopslog.Writer(k)
	for _, line := range []string{
		"", "{", "text", `{"a":1`, `{"a"}`, `{"a":}`, `{"a":tru}`, `{"a":"\x"}`, `{"a":"\u12"}`, `{"a":"`, `{"a":"\`, `{"a":[1}`, `{"a":[`,
		`{a:1}`, `{"a":1,}`, `{"a":1 "b":2}`, `{"a":[["]]`, "\xa1\x61a\x01",
	} {
		if _, err := log.Write([]byte(line)); err != nil {
			t.Errorf("%q: %v", line, err)
		}
		if r, got := k.last(t); r.Message != line || len(got) != 0 {
			t.Errorf("%q became %q with %v", line, r.Message, got)
		}
	}
	deep := strings.Repeat(`{"a":`, 10_000) + "1" + strings.Repeat("}", 10_000)
	_, _ = log.Write([]byte(deep))
	_, _ = log.Write([]byte(" { \"a\" : \"\\ud83d\\ude00\\ud83d\\u0041\" , \"b\" : [ ] } \n"))
	if _, got := k.last(t); got["a"].String() != "😀\ufffdA" || string(got["b"].Any().(json.RawMessage)) != "[ ]" {
		t.Errorf("got %v", got)
	}
}

type panicking struct{ kept }

func (*panicking) Handle(context.Context, slog.Record) error { panic("boom") }

// An error of the handler, and a panic, are reported, and cost the loop nothing.
func TestHandlerFails(t *testing.T) {
	old := zerolog.ErrorHandler
	defer func() { zerolog.ErrorHandler = old }()
	var told []error
	zerolog.ErrorHandler = func(err error) { told = append(told, err) }
	full := &kept{err: errors.New("disk full")}
	log := loopslog.Logger(full)
	log.Info().Msg("x")
	if len(told) != 1 || !strings.Contains(told[0].Error(), "disk full") {
		t.Errorf("told %v", told)
	}
	told = nil
	synctest.Test(t, func(t *testing.T) {
		srv := looptest.Start(t, &loop.Server{NumLoops: 1, Logger: loopslog.Logger(new(panicking)),
			Accept: func(*loop.Conn) loop.Handler {
				return loop.HandlerFunc(func(c *loop.Conn, msg []byte) error { c.Log().Info().Msg("x"); return c.Send(msg) })
			}})
		p := srv.Open()
		p.Send("hello")
		if got := p.Received(); got != "hello" || p.Ended() {
			t.Errorf("received %q, ended %t", got, p.Ended())
		}
	})
	if len(told) != 1 || !strings.Contains(told[0].Error(), "boom") {
		t.Errorf("told %v", told)
	}
	defer func() {
		if recover() == nil {
			t.Error("a nil handler is taken")
		}
	}()
	loopslog.Logger(nil)
}

// A program that logs by log/slog has the lines of a Server there as well.
func ExampleLogger() {
	untimed := func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}
	h := slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{ReplaceAttr: untimed})
	srv := &loop.Server{Logger: loopslog.Logger(h)}
	srv.Logger.Warn().Int("MaxConns", 5000).Int("possible", 1000).Msg("the limit of open files is too low")
	// Output: level=WARN msg="the limit of open files is too low" MaxConns=5000 possible=1000
}

// FuzzLine takes apart what may come: whatever json.Valid takes for an object comes out whole.
func FuzzLine(f *testing.F) {
	f.Add(`{"level":"info","a":1.5e3,"b":[1,{"c":"]"}],"d":{"e":null},"message":"m\u00e9"}`)
	f.Fuzz(func(t *testing.T, line string) {
		k := new(kept)
		log := loopslog.Writer(k)
		if _, err := log.Write([]byte(line)); err != nil {
			t.Fatal(err)
		}
		r, got := k.last(t)
		var fields map[string]json.RawMessage
		if json.Unmarshal([]byte(line), &fields) != nil || fields == nil {
			return
		}
		for key, value := range fields {
			_, here := got[key]
			special := key == "message" || key == "level" || key == "time"
			if !here && !special && !isEmptyGroup(value) && r.Message != line {
				t.Errorf("%q: %q is lost", line, key)
			}
		}
	})
}

// isEmptyGroup reports whether a value is a group that slog leaves out.
func isEmptyGroup(value json.RawMessage) bool {
	var fields map[string]json.RawMessage
	if json.Unmarshal(value, &fields) != nil || fields == nil {
		return false
	}
	for _, v := range fields {
		if !isEmptyGroup(v) {
			return false
		}
	}
	return true
}

// discard is a handler that looks at each attribute.
type discard struct{}

func (discard) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelInfo }
func (d discard) WithAttrs([]slog.Attr) slog.Handler         { return d }
func (d discard) WithGroup(string) slog.Handler              { return d }
func (discard) Handle(_ context.Context, r slog.Record) error {
	r.Attrs(func(slog.Attr) bool { return true })
	return nil
}

// A times is a handler that keeps the time of its last record, and what it has under "time".
type times struct {
	slog.Handler
	at  time.Time
	own slog.Value
}

func (h *times) Enabled(context.Context, slog.Level) bool { return true }

func (h *times) Handle(_ context.Context, r slog.Record) error {
	h.at, h.own = r.Time, slog.Value{}
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == zerolog.TimestampFieldName {
			h.own = a.Value
		}
		return true
	})
	return nil
}

// The time that zerolog has written is the record's in all its formats. One without a date is not.
func TestTimeFormats(t *testing.T) {
	was, clock := zerolog.TimeFieldFormat, zerolog.TimestampFunc
	defer func() { zerolog.TimeFieldFormat, zerolog.TimestampFunc = was, clock }()
	want := time.Date(2026, 11, 29, 8, 30, 0, 0, time.UTC)
	zerolog.TimestampFunc = func() time.Time { return want }
	for format, has := range map[string]bool{zerolog.TimeFormatUnix: true, zerolog.TimeFormatUnixMs: true, zerolog.TimeFormatUnixMicro: true,
		zerolog.TimeFormatUnixNano: true, time.RFC3339: true, time.RFC3339Nano: true, "15:04:05": false, "today": false} {
		zerolog.TimeFieldFormat = format
		h := new(times)
		log := loopslog.Logger(h).With().Timestamp().Logger()
		log.Info().Msg("x")
		if has && (!h.at.Equal(want) || !h.own.Equal(slog.Value{})) {
			t.Errorf("%q: the record's time is %v, want %v; beside it %v", format, h.at, want, h.own)
		}
		if !has && (time.Since(h.at) > time.Minute || h.own.Equal(slog.Value{})) {
			t.Errorf("%q: the record's time is %v, want now; beside it %v, want the text", format, h.at, h.own)
		}
	}
}

// unmarshaling is what a program would do by itself.
type unmarshaling struct{ h slog.Handler }

func (u unmarshaling) Write(line []byte) (int, error) {
	var fields map[string]any
	if err := json.Unmarshal(line, &fields); err != nil {
		return 0, err
	}
	r := slog.NewRecord(time.Now(), slog.LevelInfo, fmt.Sprint(fields["message"]), 0)
	for key, value := range fields {
		r.AddAttrs(slog.Any(key, value))
	}
	return len(line), u.h.Handle(context.Background(), r)
}

func BenchmarkLogger(b *testing.B) {
	adapter := loopslog.Logger(discard{})
	for _, bm := range []struct {
		name  string
		log   zerolog.Logger
		level zerolog.Level
	}{
		{"adapter", adapter, zerolog.WarnLevel},
		{"not wanted", adapter, zerolog.DebugLevel},
		{"encoding/json", zerolog.New(unmarshaling{discard{}}), zerolog.WarnLevel},
		{"zerolog alone", zerolog.New(nothing{}), zerolog.WarnLevel},
	} {
		b.Run(bm.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				bm.log.WithLevel(bm.level).Uint64("conn", 7).Str("remote", "192.0.2.1:5000").Int("more", 3).Msg("a message was refused")
			}
		})
	}
}

type nothing struct{}

func (nothing) Write(p []byte) (int, error) { return len(p), nil }
