// Package loopslog passes the log events of loop.Server and of the packages around it, which use
// zerolog, to a handler of log/slog.
//
//	srv.Logger = loopslog.Logger(slog.Default().Handler())
//
// For the opposite direction, from a program's slog to zerolog, zerolog itself has NewSlogHandler.
//
// # What it costs
//
// Zerolog does not expose the fields of an event: its hooks get only the level and the message, and
// its output is a line of JSON. So each line is encoded, and then decoded again by encoding/json.
// That takes about seven microseconds, for lines that are rare. An event at a level that the
// handler does not want costs neither: the handler is asked first.
package loopslog

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"time"

	"github.com/rs/zerolog"
)

// Levels of slog for the zerolog levels that slog does not name.
const (
	LevelTrace = slog.LevelDebug - 4
	LevelFatal = slog.LevelError + 4
	LevelPanic = slog.LevelError + 8
)

// Logger returns a Logger whose events become records of h. Any goroutine may use it, provided that
// any goroutine may call h.
//
// Strings, numbers and booleans keep their types: integers become int64 or uint64, other numbers
// float64. A Dict becomes a group. An array becomes a json.RawMessage. Values that zerolog encodes
// as text or as numbers remain text or numbers: an error becomes its message, a duration a number
// in zerolog.DurationFieldUnit, which is milliseconds unless the program changes it, and a time
// becomes text. A time under zerolog.TimestampFieldName, which Context.Timestamp adds, becomes the
// record's time, if zerolog.TimeFieldFormat has a date. Without one, the record has the time at
// which it was handed over. The context of an event is not passed on, and a record has no source.
//
// h decides which levels are logged, each time; Logger.Level can exclude more. A Logger that is
// derived from this one by Sample asks its own sampler first and h later, when the line has already
// been encoded. A program built with zerolog's tag binary_log produces lines that are not JSON.
// They become the message unchanged.
//
// Zerolog reports an error of h, through zerolog.ErrorHandler or on os.Stderr. It does the same
// with a panic in h: a failure to log must not end the loop that logs.
//
// Logger panics if h is nil.
func Logger(h slog.Handler) zerolog.Logger {
	if h == nil {
		panic("loopslog: Logger with a nil slog.Handler")
	}
	w := writer{h}
	return zerolog.New(w).Sample(w)
}

// A writer is where zerolog writes its lines, and what it asks for the levels.
type writer struct{ h slog.Handler }

// Sample implements zerolog.Sampler: it is asked before an event is begun. A panic of the handler
// comes again in WriteLevel, where it is reported.
func (w writer) Sample(level zerolog.Level) (enabled bool) {
	defer func() {
		if v := recover(); v != nil {
			enabled = true
		}
	}()
	return w.h.Enabled(context.Background(), levelOf(level))
}

// Write implements io.Writer, for what is not zerolog's.
func (w writer) Write(line []byte) (int, error) { return w.WriteLevel(zerolog.NoLevel, line) }

// WriteLevel implements zerolog.LevelWriter.
func (w writer) WriteLevel(level zerolog.Level, line []byte) (n int, err error) {
	defer func() {
		if v := recover(); v != nil {
			n, err = 0, fmt.Errorf("loopslog: the slog.Handler has panicked: %v", v)
		}
	}()
	ctx := context.Background()
	if !w.h.Enabled(ctx, levelOf(level)) {
		return len(line), nil
	}
	r := recordOf(levelOf(level), string(line)) // the line is zerolog's, which uses it again
	if err := w.h.Handle(ctx, r); err != nil {
		return 0, err
	}
	return len(line), nil
}

func levelOf(level zerolog.Level) slog.Level {
	switch level {
	case zerolog.TraceLevel:
		return LevelTrace
	case zerolog.DebugLevel:
		return slog.LevelDebug
	case zerolog.WarnLevel:
		return slog.LevelWarn
	case zerolog.ErrorLevel:
		return slog.LevelError
	case zerolog.FatalLevel:
		return LevelFatal
	case zerolog.PanicLevel:
		return LevelPanic
	case zerolog.InfoLevel, zerolog.NoLevel:
		return slog.LevelInfo
	}
	return slog.Level(4 * (int(level) - int(zerolog.InfoLevel))) // one of the program's own
}

// timeOf returns the time that zerolog has written, or zero if it is none with a date.
func timeOf(v slog.Value) time.Time {
	if v.Kind() == slog.KindInt64 {
		switch n := v.Int64(); zerolog.TimeFieldFormat {
		case zerolog.TimeFormatUnix:
			return time.Unix(n, 0)
		case zerolog.TimeFormatUnixMs:
			return time.UnixMilli(n)
		case zerolog.TimeFormatUnixMicro:
			return time.UnixMicro(n)
		case zerolog.TimeFormatUnixNano:
			return time.Unix(0, n)
		}
	}
	if v.Kind() != slog.KindString {
		return time.Time{}
	}
	at, err := time.Parse(zerolog.TimeFieldFormat, v.String())
	if err != nil || at.Year() == 0 {
		return time.Time{}
	}
	return at
}

// recordOf takes a line apart.
func recordOf(level slog.Level, line string) slog.Record {
	if !json.Valid([]byte(line)) {
		return slog.NewRecord(time.Now(), level, line, 0)
	}
	attrs, err := fieldsOf([]byte(line), 0)
	if err != nil {
		return slog.NewRecord(time.Now(), level, line, 0)
	}
	var message string
	var at time.Time
	kept := attrs[:0]
	for _, a := range attrs {
		isText := a.Value.Kind() == slog.KindString
		switch {
		case isText && a.Key == zerolog.MessageFieldName:
			message = a.Value.String()
			continue
		case isText && a.Key == zerolog.LevelFieldName:
			continue
		case a.Key == zerolog.TimestampFieldName && at.IsZero():
			if at = timeOf(a.Value); !at.IsZero() {
				continue
			}
		}
		kept = append(kept, a)
	}
	if at.IsZero() {
		at = time.Now()
	}
	r := slog.NewRecord(at, level, message, 0)
	r.AddAttrs(kept...)
	return r
}
