package looptest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"sync"

	"github.com/rs/zerolog"
)

// A testLog writes the lines of a server that has no Logger into the output of its test, until the
// server has ended: a test may not write after its end, and a loop that was left behind still
// could.
type testLog struct {
	mu  sync.Mutex
	out io.Writer // nil: the server has ended
}

// logTo gives srv a Logger, if it has none, whose warnings and errors go to out.
func (t *testLog) logTo(out io.Writer, logger *zerolog.Logger) {
	if !reflect.ValueOf(*logger).IsZero() {
		return
	}
	t.out = out
	*logger = zerolog.New(t).Level(zerolog.WarnLevel)
}

func (t *testLog) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.out = nil
}

// Write implements io.Writer. A stack is written as what it is: lines.
func (t *testLog) Write(line []byte) (int, error) {
	fields := make(map[string]any)
	if err := json.Unmarshal(line, &fields); err != nil {
		return 0, err
	}
	text := fmt.Appendf(nil, "server: %v: %v", fields["level"], fields["message"])
	stack, _ := fields["stack"].(string)
	for _, known := range []string{"level", "message", "stack"} {
		delete(fields, known)
	}
	for _, key := range slices.Sorted(maps.Keys(fields)) {
		text = fmt.Appendf(text, ", %s %v", key, fields[key])
	}
	text = append(text, '\n')
	if stack != "" {
		text = append(append(text, bytes.TrimSpace([]byte(stack))...), '\n')
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.out != nil {
		_, _ = t.out.Write(text)
	}
	return len(line), nil
}
