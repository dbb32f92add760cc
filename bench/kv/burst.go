package main

import (
	"bufio"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/loopwheel/loopwheel/bench/internal/stalls"
	"github.com/loopwheel/loopwheel/codec/resp"
)

// burst puts in keys that all go within one second, and tells how long commands take meanwhile.
func burst(a, b *server, keys int) error {
	debug.SetGCPercent(-1)
	for _, s := range []*server{a, b} {
		if err := s.burst(keys); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	return nil
}

func (s *server) burst(keys int) error {
	events, err := s.subscribe(keys)
	if err != nil {
		return err
	}
	first := time.Now().Add(lead)
	if err := s.fill(keys, func() time.Time { return first.Add(rand.N(time.Second)) }); err != nil {
		return err
	}
	time.Sleep(time.Until(first.Add(-2 * time.Second)))
	w, err := stalls.Watch("-stalls")
	if err != nil {
		return err
	}
	quiet, err := s.commands(func() bool { return !time.Now().Before(first) })
	if err != nil {
		return err
	}
	before, _ := s.cpuTime()
	var went []gone
	busy, err := s.commands(func() bool {
		select {
		case went = <-events:
			return true
		default:
			return time.Since(first) > time.Minute
		}
	})
	if err != nil {
		return err
	}
	if went == nil {
		return errors.New("not all keys have gone after a minute")
	}
	after, _ := s.cpuTime()
	late := make([]float64, len(went))
	for i, g := range went {
		late[i] = ms(g.late())
	}
	fmt.Printf("%s: commands' ms while %d keys went: p50 %.2f  p99 %.2f  p99.9 %.2f  p100 %.2f (%d of them; before that p50 %.2f p99 %.2f p100 %.2f)\n",
		s.name, keys, quantile(busy, 0.5), quantile(busy, 0.99), quantile(busy, 0.999), slices.Max(busy), len(busy),
		quantile(quiet, 0.5), quantile(quiet, 0.99), slices.Max(quiet))
	fmt.Printf("%s: keys late by ms: p50 %.2f  p99 %.2f  p100 %.2f; all had gone %.2f s after the first was due; %.2f s of CPU\n",
		s.name, quantile(late, 0.5), quantile(late, 0.99), slices.Max(late), went[len(went)-1].at.Sub(first).Seconds(), (after - before).Seconds())
	fmt.Println("  the machine:", stalls.Describe(w.Stop()))
	return nil
}

// commands sends one command after the other until it is over, and returns how many milliseconds
// each took.
func (s *server) commands(over func() bool) (took []float64, err error) {
	c, err := s.dial()
	if err != nil {
		return nil, err
	}
	defer c.Close()
	in := bufio.NewReader(c)
	value := strings.Repeat("v", 32)
	for i := 0; !over(); i++ {
		wire := resp.AppendCommand(nil, "SET", "lasting", value)
		began := time.Now()
		if _, err := c.Write(wire); err != nil {
			return nil, err
		}
		if _, err := in.ReadSlice('\n'); err != nil {
			return nil, err
		}
		took = append(took, ms(time.Since(began)))
		time.Sleep(100 * time.Microsecond) // so that it is not this client that the server is busy with
	}
	return took, nil
}
