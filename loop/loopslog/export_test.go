package loopslog

import (
	"io"
	"log/slog"
)

// Writer returns what zerolog writes its lines to.
func Writer(h slog.Handler) io.Writer { return writer{h} }
