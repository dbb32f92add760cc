package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"time"

	"github.com/loopwheel/loopwheel/bench/internal/child"
)

const (
	warmUp = 500 * time.Millisecond
	period = 2 * time.Millisecond // of the prober

	patience = 3 * time.Second // of the prober with the last answers
)

// A result is what one run showed.
type result struct {
	waits    []time.Duration // of the prober, sorted
	messages float64         // of the floods
	took     time.Duration
	cpu      time.Duration // of the server
	usage    child.Usage   // of it, while it was measured
}

func (r result) quantile(q float64) time.Duration {
	return r.waits[min(len(r.waits)-1, int(q*float64(len(r.waits))))]
}

// used asks a server how many messages it had and how much CPU time it took.
func used(server *child.Process) (messages float64, cpu time.Duration, err error) {
	answer, err := server.Ask("")
	if err == nil {
		_, err = fmt.Sscanln(answer, &messages, &cpu)
	}
	return messages, cpu, err
}

func run(bin, server string, c cell, turns int, length time.Duration) (r result, err error) {
	if server == "before" {
		server = "loopwheel"
	}
	srv, err := child.Start(exec.Command(bin, "-serve", server, "-kind", c.kind, "-spin", strconv.Itoa(turns)))
	if err != nil {
		return r, err
	}
	defer srv.End()
	var probes, target string
	addrs, err := srv.Line()
	if err == nil {
		_, err = fmt.Sscanln(addrs, &probes, &target)
	}
	if err != nil {
		return r, fmt.Errorf("the server does not say where it listens: %w", err)
	}
	floods, err := child.Start(exec.Command(bin, "-flood", target, "-kind", c.kind, "-conns", strconv.Itoa(c.floods)))
	if err != nil {
		return r, err
	}
	defer floods.End()
	if _, err := floods.Line(); err != nil {
		return r, fmt.Errorf("the floods do not begin: %w", err)
	}
	time.Sleep(warmUp)
	messages, cpu, err := used(srv)
	if err != nil {
		return r, err
	}
	before := srv.Usage()
	began := time.Now()
	if r.waits, err = probe(probes, length); err != nil {
		return r, fmt.Errorf("the prober: %w", err)
	}
	r.took = time.Since(began)
	after := srv.Usage()
	r.usage = child.Usage{User: after.User - before.User, System: after.System - before.System, Waited: after.Waited - before.Waited}
	m, c2, err := used(srv)
	r.messages, r.cpu = m-messages, c2-cpu
	return r, err
}

// probe sends a byte each period, whether or not those before it have come back, and returns how
// long each took to do so, sorted: of those that have not come back in the end, as long as was
// waited.
func probe(addr string, length time.Duration) (waits []time.Duration, err error) {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	sent := make(chan time.Time, length/period+1)
	began := time.Now()
	_ = c.SetDeadline(began.Add(length + patience))
	go func() {
		defer close(sent)
		for due := began; due.Before(began.Add(length)); due = due.Add(period) {
			time.Sleep(time.Until(due))
			sent <- time.Now()
			if _, err := c.Write([]byte("x")); err != nil {
				return
			}
		}
	}()
	for at := range sent {
		_, err := io.ReadFull(c, make([]byte, 1))
		if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			return nil, err
		}
		waits = append(waits, time.Since(at))
	}
	slices.Sort(waits)
	return waits, nil
}
