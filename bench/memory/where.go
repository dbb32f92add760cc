package main

import (
	"fmt"
	"runtime"
	"runtime/metrics"
	"slices"
	"strings"
)

// whereRequest asks a server for answerWhere.
const whereRequest = "where"

// memoryClasses are parts of a program's memory that the heap's objects are not.
var memoryClasses = []string{
	"heap/unused", "heap/free", "heap/stacks", "metadata/mspan/inuse", "metadata/mcache/inuse", "metadata/other",
	"os-stacks", "other", "profiling/buckets",
}

// printWhere prints where the memory of idle connections was allocated, by the heap profile of the
// server.
func printWhere(conns int, only string) error {
	for _, name := range names {
		if !chosen(name, only) {
			continue
		}
		lines, err := measureWhere(name, conns)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		fmt.Printf("%s: %d connections\n", name, conns)
		for _, l := range lines {
			fmt.Println(l)
		}
	}
	return nil
}

func measureWhere(name string, conns int) ([]string, error) {
	s, err := start("-serve", name, "-where")
	if err != nil {
		return nil, err
	}
	defer s.End()
	clients, err := connect(s.addr, conns)
	if err != nil {
		return nil, err
	}
	defer clients.End()
	answer, err := s.Ask(fmt.Sprintf("%s %d", whereRequest, conns))
	return strings.Split(answer, "\t"), err
}

// answerWhere returns, in one line, what is in use per connection: by place, and beside the heap's
// objects.
func answerWhere(request string) string {
	var conns int64
	_, _ = fmt.Sscanf(request, whereRequest+" %d", &conns)
	_, _ = current()
	var parts []string
	for _, r := range inUse() {
		if b := r.InUseBytes() / conns; b > 0 {
			parts = append(parts, fmt.Sprintf("%6d bytes  %5.2f objects  %s", b,
				float64(r.InUseObjects())/float64(conns), describe(r.Stack0)))
		}
	}
	for _, class := range memoryClasses {
		sample := []metrics.Sample{{Name: "/memory/classes/" + class + ":bytes"}}
		metrics.Read(sample)
		parts = append(parts, fmt.Sprintf("%6d bytes  %s", int64(sample[0].Value.Uint64())/conns, class))
	}
	return strings.Join(parts, "\t")
}

// inUse returns the heap profile, the largest first.
func inUse() []runtime.MemProfileRecord {
	records := make([]runtime.MemProfileRecord, 10_000)
	n, _ := runtime.MemProfile(records, false)
	records = records[:n]
	slices.SortFunc(records, func(a, b runtime.MemProfileRecord) int { return int(b.InUseBytes() - a.InUseBytes()) })
	return records
}
