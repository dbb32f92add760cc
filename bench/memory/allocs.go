package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"maps"
	"net"
	"runtime"
	"slices"
	"strings"
)

// A stack is where something was allocated.
type stack [32]uintptr

// An allocSite is a place that allocated while messages were echoed.
type allocSite struct {
	where string // the first functions that are not the runtime's
	count int64
}

// perMessage is what a site allocates for each message.
func (s allocSite) perMessage(messages int) float64 { return float64(s.count) / float64(messages) }

// printAllocs prints where the servers allocate in steady state, by the heap profile of a process
// with the server and a client that allocates nothing.
func printAllocs(messages int, only string) error {
	runtime.MemProfileRate = 1
	for _, name := range names {
		if !chosen(name, only) {
			continue
		}
		sites, err := steadyAllocs(servers[name], messages)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		var all int64
		for _, s := range sites {
			all += s.count
		}
		fmt.Printf("%s: %d allocations for %d messages\n", name, all, messages)
		for _, s := range sites {
			fmt.Printf("%10d  %.6f per message  %s\n", s.count, s.perMessage(messages), s.where)
		}
	}
	return nil
}

// steadyAllocs has a server echo so many messages, some of them in pieces, and returns what was
// allocated meanwhile, the most frequent first. MemProfileRate must have been 1 from the start.
func steadyAllocs(start func() (string, error), messages int) ([]allocSite, error) {
	addr, err := start()
	if err != nil {
		return nil, err
	}
	const conns, depth = 10, 8
	cs := make([]net.Conn, conns)
	for i := range cs {
		if cs[i], err = net.Dial("tcp", addr); err != nil {
			return nil, err
		}
		defer cs[i].Close()
	}
	msg := append(binary.BigEndian.AppendUint32(nil, 64), make([]byte, 64)...)
	out := bytes.Repeat(msg, depth)
	in := make([]byte, len(out))
	if err := converse(cs, out, in, 100); err != nil { // until all buffers are there
		return nil, err
	}
	before := profile()
	if err := converse(cs, out, in, messages/conns/depth); err != nil {
		return nil, err
	}
	return since(before, profile()), nil
}

// converse sends out on each connection, in two pieces that do not end with a message, and reads
// the answers; again and again.
func converse(cs []net.Conn, out, in []byte, rounds int) error {
	cut := len(out)/2 + 7
	for range rounds {
		for _, piece := range [2][]byte{out[:cut], out[cut:]} {
			for _, c := range cs {
				if _, err := c.Write(piece); err != nil {
					return err
				}
			}
			runtime.Gosched()
		}
		for _, c := range cs {
			if _, err := io.ReadFull(c, in); err != nil {
				return err
			}
		}
	}
	return nil
}

// profile returns how many objects have been allocated where.
func profile() map[stack]int64 {
	runtime.GC() // the profile shows what was before the last but one
	runtime.GC()
	var records []runtime.MemProfileRecord
	for {
		n, ok := runtime.MemProfile(records, true)
		if ok {
			records = records[:n]
			break
		}
		records = make([]runtime.MemProfileRecord, n+100)
	}
	counts := make(map[stack]int64)
	for _, r := range records {
		counts[r.Stack0] += r.AllocObjects
	}
	return counts
}

// since returns what has been allocated between two profiles, but for the profiles themselves.
func since(before, after map[stack]int64) []allocSite {
	sites := make(map[string]int64)
	for s, n := range after {
		if n -= before[s]; n <= 0 {
			continue
		}
		if where := describe(s); where != "" {
			sites[where] += n
		}
	}
	var all []allocSite
	for _, where := range slices.Sorted(maps.Keys(sites)) {
		all = append(all, allocSite{where, sites[where]})
	}
	slices.SortStableFunc(all, func(a, b allocSite) int { return int(b.count - a.count) })
	return all
}

// describe names the innermost functions of a stack that are not the runtime's; "" for the
// profile's own, and for what the runtime does for itself.
func describe(s stack) string {
	const deep = 4
	var names []string
	n := slices.Index(s[:], 0)
	if n < 0 {
		n = len(s)
	}
	frames := runtime.CallersFrames(s[:n])
	for {
		f, more := frames.Next()
		if f.Function == "main.profile" {
			return ""
		}
		if !strings.HasPrefix(f.Function, "runtime.") && len(names) < deep {
			names = append(names, fmt.Sprintf("%s:%d", f.Function, f.Line))
		}
		if !more {
			return strings.Join(names, " < ")
		}
	}
}
