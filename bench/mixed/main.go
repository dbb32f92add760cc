// Command mixed measures what goroutines that wait for sockets pay for sharing a processor with
// event loops: a server echoes on its loops, and for some requests calls a backend over TCP by
// loop.Offload. Variants differ in the number of loops and of Ps (GOMAXPROCS); they take turns,
// round after round, and the table shows medians with the least and the greatest in brackets.
//
//	go run ./mixed [-variants 2/2,1/2,2/3,net] [-rounds 3] [-for 10s] [-echoes 5000] [-calls 1000]
//
// A variant is LOOPS/PS; 0/0 is what Server and the runtime choose by themselves, and net is a server
// without loops, with a goroutine for each connection: what the machine itself makes of such a load.
package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/loop"
)

// messageSize is that of a message and its length.
const messageSize = 68

func main() {
	log.SetFlags(0)
	log.SetPrefix("mixed: ")
	var (
		variants = flag.String("variants", "2/2,1/2,2/3,0/0,net", "LOOPS/PS or net, separated by commas")
		rounds   = flag.Int("rounds", 3, "rounds")
		length   = flag.Duration("for", 10*time.Second, "length of each run")
		echoes   = flag.Int("echoes", 5000, "echoes per second")
		calls    = flag.Int("calls", 1000, "offloaded calls per second")
		serve    = flag.String("serve", "", "be a server: backend, net, or a number of loops")
		backend  = flag.String("backend", "", "address of the backend, with -serve")
	)
	flag.Parse()
	var err error
	switch *serve {
	case "":
		err = compare(strings.Split(*variants, ","), *rounds, load{*length, *echoes, *calls})
	case "backend":
		err = serveBackend()
	case "net":
		err = serveNet(*backend)
	default:
		err = serveLoops(*serve, *backend)
	}
	if err != nil {
		log.Fatal(err)
	}
}

// serveBackend echoes, as a database that answers at once would.
func serveBackend() error {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(ln.Addr())
	for {
		c, err := ln.Accept()
		if err != nil {
			return err
		}
		go func() { _, _ = io.Copy(c, c) }()
	}
}

// serveLoops echoes messages that begin with an e, and sends others to the backend and back.
func serveLoops(loops, backend string) error {
	n, err := strconv.Atoi(loops)
	if err != nil {
		return err
	}
	pool := make(chan net.Conn, 64)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	srv := &loop.Server{
		Addr:        "tcp://127.0.0.1:0",
		Codec:       codec.Length{},
		NumLoops:    n,
		IdleTimeout: time.Minute,
		Accept: func(*loop.Conn) loop.Handler {
			return loop.HandlerFunc(func(c *loop.Conn, msg []byte) error {
				if msg[0] == 'e' {
					return c.Send(msg)
				}
				req := slices.Clone(msg)
				return loop.Offload(c, func(context.Context) error { return roundTrip(pool, backend, req) },
					func(c *loop.Conn, err error) {
						if err != nil {
							c.CloseWithError(err)
							return
						}
						_ = c.Send(req)
					})
			})
		},
	}
	if err := srv.Start(ctx); err != nil {
		return err
	}
	fmt.Println(srv.LocalAddr(), len(srv.Loops()), runtime.GOMAXPROCS(0))
	return srv.Wait()
}

// roundTrip uses a connection of the pool, or a new one.
func roundTrip(pool chan net.Conn, backend string, req []byte) error {
	var c net.Conn
	select {
	case c = <-pool:
	default:
		var err error
		if c, err = net.Dial("tcp", backend); err != nil {
			return err
		}
	}
	if _, err := c.Write(req); err != nil {
		return err
	}
	if _, err := io.ReadFull(c, req); err != nil {
		return err
	}
	select {
	case pool <- c:
		return nil
	default:
		return c.Close()
	}
}

// A load is what the clients ask for.
type load struct {
	length        time.Duration
	echoes, calls int // per second
}

// A result is what one run took.
type result struct {
	cpu          time.Duration // of the server, per second
	echoes       []time.Duration
	calls        []time.Duration
	loops, procs int
}

func compare(variants []string, rounds int, ld load) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	backend := exec.Command(self, "-serve", "backend")
	addr, err := start(backend)
	if err != nil {
		return err
	}
	defer func() { _ = backend.Process.Kill(); _ = backend.Wait() }()
	results := make(map[string][]result)
	for round := range rounds {
		for _, v := range variants {
			fmt.Fprintf(os.Stderr, "round %d of %d: %s\n", round+1, rounds, v)
			r, err := run(self, v, addr, ld)
			if err != nil {
				return fmt.Errorf("%s: %w", v, err)
			}
			results[v] = append(results[v], r)
		}
	}
	fmt.Printf("| loops/Ps | CPU ms/s | echo p50 ms | p99 | max | call p50 ms | p99 | max |\n|---|---|---|---|---|---|---|---|\n")
	for _, v := range variants {
		rs := results[v]
		row := []string{fmt.Sprintf("%d/%d", rs[0].loops, rs[0].procs), span(rs, func(r result) float64 { return ms(r.cpu) })}
		for _, of := range []func(result) []time.Duration{
			func(r result) []time.Duration { return r.echoes }, func(r result) []time.Duration { return r.calls },
		} {
			for _, q := range []float64{0.5, 0.99, 1} {
				row = append(row, span(rs, func(r result) float64 { return ms(quantile(of(r), q)) }))
			}
		}
		fmt.Printf("| %s |\n", strings.Join(row, " | "))
	}
	return nil
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// quantile expects sorted durations.
func quantile(s []time.Duration, q float64) time.Duration {
	return s[min(len(s)-1, int(q*float64(len(s))))]
}

// span formats the median of a figure, with the least and the greatest.
func span(rs []result, of func(result) float64) string {
	var s []float64
	for _, r := range rs {
		s = append(s, of(r))
	}
	slices.Sort(s)
	return fmt.Sprintf("%.3g (%.3g–%.3g)", s[len(s)/2], s[0], s[len(s)-1])
}

// start starts a process and returns the first line that it prints.
func start(cmd *exec.Cmd) (string, error) {
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return "", err
	}
	if err := cmd.Start(); err != nil {
		return "", err
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	return strings.TrimSpace(line), err
}

func run(self, variant, backend string, ld load) (r result, err error) {
	loops, procs, ok := strings.Cut(variant, "/")
	if variant == "net" {
		procs, ok = "0", true
	}
	if !ok {
		return r, errors.New("a variant is LOOPS/PS")
	}
	server := exec.Command(self, "-serve", loops, "-backend", backend)
	server.Env = os.Environ()
	if procs != "0" {
		server.Env = append(server.Env, "GOMAXPROCS="+procs)
	}
	line, err := start(server)
	if err != nil {
		return r, err
	}
	defer func() {
		_ = server.Process.Signal(syscall.SIGTERM)
		err = cmp.Or(err, server.Wait())
		r.cpu = time.Duration(float64(server.ProcessState.UserTime()+server.ProcessState.SystemTime()) / ld.length.Seconds())
	}()
	var addr string
	if _, err := fmt.Sscan(line, &addr, &r.loops, &r.procs); err != nil {
		return r, err
	}
	const echoConns, callConns = 50, 20
	var wg sync.WaitGroup
	errs := make(chan error, 1)
	r.echoes = drive(&wg, errs, addr, "e", echoConns, ld.echoes, ld.length)
	r.calls = drive(&wg, errs, addr, "c", callConns, ld.calls, ld.length)
	wg.Wait()
	select {
	case err = <-errs:
	default:
	}
	slices.Sort(r.echoes)
	slices.Sort(r.calls)
	return r, err
}

// drive starts clients that together send rate messages per second, each at its time whether or not
// the server keeps up, and returns where they write how long the answers took.
func drive(wg *sync.WaitGroup, errs chan<- error, addr, kind string, conns, rate int, length time.Duration) []time.Duration {
	perConn := int(float64(rate)*length.Seconds()) / conns
	took := make([]time.Duration, perConn*conns)
	interval := time.Second * time.Duration(conns) / time.Duration(rate)
	for i := range conns {
		mine := took[i*perConn : (i+1)*perConn]
		wg.Go(func() {
			if err := client(addr, kind, mine, interval, interval*time.Duration(i)/time.Duration(conns)); err != nil {
				select {
				case errs <- err:
				default:
				}
			}
		})
	}
	return took
}

func client(addr, kind string, took []time.Duration, interval, offset time.Duration) error {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return err
	}
	defer c.Close()
	msg := make([]byte, messageSize)
	binary.BigEndian.PutUint32(msg, messageSize-4)
	copy(msg[4:], kind)
	in := make([]byte, len(msg))
	next := time.Now().Add(offset)
	for i := range took {
		next = next.Add(interval)
		time.Sleep(time.Until(next))
		sent := time.Now()
		if _, err := c.Write(msg); err != nil {
			return err
		}
		if _, err := io.ReadFull(c, in); err != nil {
			return err
		}
		took[i] = time.Since(sent)
	}
	return nil
}
