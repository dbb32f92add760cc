// Package goroutine names goroutines and shows their stacks, which the runtime offers only as text,
// finds calls on the wrong one, and keeps the panics of user code from ending one.
package goroutine

import (
	"bytes"
	"runtime"
	"strconv"
)

const (
	firstDump = 64 << 10 // bytes that the stacks of all goroutines get at first
	maxDump   = 4 << 20  // and at most: with tens of thousands of goroutines a dump is not worth its time
)

// ID returns the number of the calling goroutine. It reads the number in "goroutine 7 [running]:";
// the runtime offers no other way.
func ID() uint64 {
	var buf [40]byte
	line := buf[:runtime.Stack(buf[:], false)]
	line = bytes.TrimPrefix(line, []byte("goroutine "))
	line, _, _ = bytes.Cut(line, []byte(" "))
	id, _ := strconv.ParseUint(string(line), 10, 64)
	return id
}

// Stack returns the stack of another goroutine, as it is now, or nil if it is not found. The
// runtime shows either one's own or all, and stops all goroutines for that; so this is for
// emergencies.
func Stack(id uint64) []byte {
	for size := firstDump; ; size *= 4 {
		buf := make([]byte, size)
		n := runtime.Stack(buf, true)
		if stack := cut(buf[:n], id, n == size); stack != nil {
			return stack
		}
		if n < size || size >= maxDump {
			return nil
		}
	}
}

// cut cuts one goroutine out of a dump of all. In a dump that was cut off itself, the last one is
// not to be had.
func cut(dump []byte, id uint64, cutOff bool) []byte {
	head := []byte("goroutine " + strconv.FormatUint(id, 10) + " ")
	all := bytes.Split(dump, []byte("\n\n"))
	if cutOff {
		all = all[:len(all)-1]
	}
	for _, stack := range all {
		if bytes.HasPrefix(stack, head) {
			return bytes.Clone(bytes.TrimRight(stack, "\n"))
		}
	}
	return nil
}
