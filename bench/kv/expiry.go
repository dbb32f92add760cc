package main

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/loopwheel/loopwheel/bench/internal/stalls"
	"github.com/loopwheel/loopwheel/codec/resp"
)

// lead is how long before the first key goes it is put in, so that all are in by then.
const lead = 12 * time.Second

// A gone is a key that has expired, as a subscriber to the events was told: when it was to go, and
// when the event came.
type gone struct{ due, at time.Time }

func (g gone) late() time.Duration { return g.at.Sub(g.due) }

// expiry puts in keys whose times are spread over a while, and tells how late they went: first of
// the one server, then of the other, so that each has the machine for itself.
func expiry(a, b *server, keys int, over time.Duration) error {
	debug.SetGCPercent(-1) // what is measured shall not wait for this program
	for _, s := range []*server{a, b} {
		if err := s.expiry(keys, over); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	return nil
}

func (s *server) expiry(keys int, over time.Duration) error {
	events, err := s.subscribe(keys)
	if err != nil {
		return err
	}
	empty := s.memory()
	first := time.Now().Add(lead)
	before, _ := s.cpuTime()
	began := time.Now()
	if err := s.fill(keys, func() time.Time { return first.Add(rand.N(over)) }); err != nil {
		return err
	}
	loaded, _ := s.cpuTime()
	fmt.Printf("%s: %d keys put in within %.1f s, %.1f us of CPU each, %d MiB, %.0f bytes each\n", s.name, keys,
		time.Since(began).Seconds(), float64((loaded-before).Microseconds())/float64(keys), s.memory(),
		float64(s.memory()-empty)*(1<<20)/float64(keys))
	time.Sleep(time.Until(first))
	idle, _ := s.cpuTime()
	w, err := stalls.Watch("-stalls")
	if err != nil {
		return err
	}
	waits := watchWaits(s.cmd.Process.Pid, os.Getpid())
	var went []gone
	select {
	case went = <-events:
	case <-time.After(over + 30*time.Second):
		return fmt.Errorf("not all of the keys have gone")
	}
	after, _ := s.cpuTime()
	s.tellExpiry(went, w.Stop(), waits(), after-idle, over)
	return nil
}

func (s *server) tellExpiry(went []gone, machine []stalls.Stall, waits []wait, cpu, over time.Duration) {
	late := make([]float64, len(went))
	var early, beyond, stalled, waiting int
	var unexplained []gone
	for i, g := range went {
		late[i] = ms(g.late())
		if g.late() < 0 {
			early++
		}
		if g.late() > 2*time.Millisecond {
			beyond++
			switch {
			case stalls.Overlap(machine, g.due, g.at):
				stalled++
			case hadToWait(waits, g):
				waiting++
			default:
				unexplained = append(unexplained, g)
			}
		}
	}
	fmt.Printf("%s: late by ms: p50 %.2f  p99 %.2f  p99.9 %.2f  p100 %.2f; early: %d; more than 2 ms: %d, of which %d while a core stalled, %d more while a thread waited for a core\n",
		s.name, quantile(late, 0.5), quantile(late, 0.99), quantile(late, 0.999), slices.Max(late), early, beyond, stalled, waiting)
	tellMoments(unexplained)
	fmt.Printf("%s: %.2f s of CPU in %.0f s, %d MiB at the end; %s\n", s.name, cpu.Seconds(), over.Seconds(), s.memory(), s.own())
	fmt.Println("  the machine:", stalls.Describe(machine))
}

// own returns what the server itself says about how late keys went, if it does.
func (s *server) own() string {
	c, err := s.dial()
	if err != nil {
		return err.Error()
	}
	defer c.Close()
	_, _ = c.Write(resp.AppendCommand(nil, "INFO", "stats"))
	var found []string
	for in := bufio.NewScanner(c); in.Scan() && !strings.HasPrefix(in.Text(), "loop_turn_max_us"); {
		if strings.HasPrefix(in.Text(), "expire") {
			found = append(found, strings.TrimSpace(in.Text()))
		}
		if strings.HasPrefix(in.Text(), "unexpected_error_replies") {
			break
		}
	}
	return strings.Join(found, " ")
}

func (s *server) dial() (net.Conn, error) { return net.Dial("tcp", "127.0.0.1:"+s.port) }

// fill puts in keys, each with its time in its name.
func (s *server) fill(keys int, due func() time.Time) error {
	c, err := s.dial()
	if err != nil {
		return err
	}
	defer c.Close()
	in := bufio.NewReader(c)
	const batch = 500
	began := time.Now()
	var wire []byte
	for done := 0; done < keys; done += batch {
		wire = wire[:0]
		n := min(batch, keys-done)
		for i := range n {
			at := strconv.FormatInt(due().UnixMilli(), 10)
			wire = resp.AppendCommand(wire, "SET", "key:"+strconv.Itoa(done+i)+":"+at, "value", "PXAT", at)
		}
		if _, err := c.Write(wire); err != nil {
			return err
		}
		for range n {
			if line, err := in.ReadSlice('\n'); err != nil || line[0] != '+' {
				return fmt.Errorf("SET answers %q, %v", line, err)
			}
		}
	}
	if took := time.Since(began); took > lead-2*time.Second {
		return fmt.Errorf("it took %s to put in the keys, so that some went before: this machine is too busy to measure on", took)
	}
	return nil
}

// subscribe listens to the events of keys that expire, until there were n.
func (s *server) subscribe(n int) (<-chan []gone, error) {
	c, err := s.dial()
	if err != nil {
		return nil, err
	}
	if _, err := c.Write(resp.AppendCommand(nil, "SUBSCRIBE", "__keyevent@0__:expired")); err != nil {
		return nil, err
	}
	all := make(chan []gone, 1)
	in := bufio.NewReaderSize(c, 1<<20)
	for range 6 { // the answer
		if _, err := in.ReadSlice('\n'); err != nil {
			return nil, err
		}
	}
	went := make([]gone, 0, n)
	go func() {
		defer c.Close()
		for len(went) < n {
			key, err := event(in)
			if err != nil {
				return
			}
			at := time.Now()
			_, due, _ := strings.Cut(strings.TrimPrefix(key, "key:"), ":")
			t, _ := strconv.ParseInt(due, 10, 64)
			went = append(went, gone{time.UnixMilli(t), at})
		}
		all <- went
	}()
	return all, nil
}

// event reads one message: *3, then length and text of "message", the channel and the key.
func event(in *bufio.Reader) (key string, err error) {
	var line []byte
	for range 7 {
		if line, err = in.ReadSlice('\n'); err != nil {
			return "", err
		}
	}
	return strings.TrimSpace(string(line)), nil
}
