package loop

import "time"

// trimEvery is how often a loop whose buffers take much memory looks which of them it still needs.
const trimEvery = 2 * time.Second

// trimSoon has the loop give back the buffers that it does not need any more. A loop that never had
// many has no timer for that, and one that has given them back has none again.
func (l *Loop) trimSoon() {
	if !l.wheel.Pending(l.trim) {
		l.trim = l.wheel.At(l.after(trimEvery), l.trimStore)
	}
}

func (l *Loop) trimStore() {
	l.current = nil
	l.store.Trim()
	if l.store.Large() {
		l.trimSoon()
	}
}
