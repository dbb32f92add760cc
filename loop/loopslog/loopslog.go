// Package loopslog has what loop.Server and the packages around it log, which is by zerolog, go to
// a handler of log/slog.
//
//	srv.Logger = loopslog.Logger(slog.Default().Handler())
//
// The other way round, to have a program's slog go to zerolog, zerolog has NewSlogHandler itself.
//
// # What it costs
//
// Zerolog hands the fields of an event to nobody: its hooks see the level and the message, and all
// that comes out of it is a line of JSON. So a line is encoded, and taken apart again by
// encoding/json: some seven microseconds, for lines that are rare. A level that the handler does
// not want costs neither: the handler is asked before the event is begun.
package loopslog

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"time"

	"github.com/rs/zerolog"
)

// Levels of slog that stand for those of zerolog that slog has no name for.
const (
	LevelTrace = slog.LevelDebug - 4
	LevelFatal = slog.LevelError + 4
	LevelPanic = slog.LevelError + 8
)

// Logger returns a Logger whose events become records of h. Any goroutine may use it, as h is one
// that any may call.
//
// Strings, numbers and booleans stay what they are: integers are int64 or uint64, others float64. A
// Dict is a group. An array is a json.RawMessage. A value that zerolog makes text or a number of
// stays that: an error is its message; a duration is a number of zerolog.DurationFieldUnit,
// milliseconds unless the program says otherwise; a time is text, but one under
// zerolog.TimestampFieldName, as Context.Timestamp adds it, is the record's own time. Without that
// the record has the time at which it was handed over. The context of an event is not handed on,
// and a record has no source.
//
// Which levels are logged is for h to say, each time; Logger.Level can leave out more. A Logger
// made of this one by Sample asks its own sampler in place of h first, and h then, when the line is
// encoded already. A program built with zerolog's tag binary_log logs lines that are no JSON: they
// become the message as they are.
//
// An error of h is zerolog's to report, by zerolog.ErrorHandler or on os.Stderr. So is a panic in
// h: that an event cannot be logged must not end the loop that has something to log.
//
// A nil h panics here.
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
		case isText && a.Key == zerolog.TimestampFieldName && at.IsZero():
			var err error
			if at, err = time.Parse(zerolog.TimeFieldFormat, a.Value.String()); err == nil {
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
