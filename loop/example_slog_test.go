package loop_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"

	"github.com/rs/zerolog"

	"github.com/loopwheel/loopwheel/loop"
)

// slogWriter is an io.Writer for zerolog.New: each line becomes a record of l.
type slogWriter struct{ l *slog.Logger }

func (w slogWriter) Write(line []byte) (int, error) {
	var fields map[string]any
	if err := json.Unmarshal(line, &fields); err != nil {
		return 0, err
	}
	level := slog.LevelInfo
	_ = level.UnmarshalText([]byte(fmt.Sprint(fields["level"]))) // "trace" and "fatal" count as info
	message := fmt.Sprint(fields["message"])
	delete(fields, "level")
	delete(fields, "message")
	var args []any
	for _, key := range slices.Sorted(maps.Keys(fields)) {
		args = append(args, key, fields[key])
	}
	w.l.Log(context.Background(), level, message, args...)
	return len(line), nil
}

// A program that logs by log/slog has the lines of a Server there as well.
func ExampleServer_slog() {
	untimed := func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}
	l := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{ReplaceAttr: untimed}))
	srv := &loop.Server{Logger: zerolog.New(slogWriter{l})}
	srv.Logger.Warn().Int("MaxConns", 5000).Int("possible", 1000).Msg("the limit of open files is too low")
	// Output: level=WARN msg="the limit of open files is too low" MaxConns=5000 possible=1000
}
