package limits

import (
	"strings"
	"sync"
	"time"
)

// logEvery is how often something that peers can cause is logged at most.
const logEvery = time.Second

// A LogRate lets one line pass each second, and counts the others: what peers can cause must not
// fill a log. The zero LogRate is ready.
type LogRate struct {
	mu         sync.Mutex
	last       time.Time
	suppressed int // lines since then
}

// Pass reports whether a line may be written, and how many were not since the last one.
func (r *LogRate) Pass(now time.Time) (suppressed int, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now.Sub(r.last) < logEvery {
		r.suppressed++
		return 0, false
	}
	suppressed = r.suppressed
	r.last, r.suppressed = now, 0
	return suppressed, true
}

// LogRates tell apart maxTexts texts, by their first keyLen bytes.
const maxTexts, keyLen = 256, 128

// LogRates are a LogRate for each beginning of a text, of which they keep a copy. The zero LogRates
// is ready.
type LogRates struct {
	mu   sync.Mutex
	logs map[string]*LogRate
}

// Pass is LogRate.Pass for lines with a text.
func (r *LogRates) Pass(text string, now time.Time) (suppressed int, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.logs == nil {
		r.logs = make(map[string]*LogRate)
	}
	key := text[:min(len(text), keyLen)]
	if r.logs[key] == nil && len(r.logs) >= maxTexts {
		key = "" // the others share one
	}
	if r.logs[key] == nil {
		r.logs[strings.Clone(key)] = new(LogRate)
	}
	return r.logs[key].Pass(now)
}
