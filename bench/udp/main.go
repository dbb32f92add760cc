//go:build linux

// Command udp measures an echo over UDP beside Go's net and gnet: the CPU time of the server for
// each datagram of 64 bytes. It fills the table UDP of docs/performance.md:
//
//	go run ./udp          # five rounds: a minute
//	go run ./udp -quick
//
// Each server is a process of its own with one thread that runs Go code. The servers take turns.
package main

import (
	"errors"
	"flag"
	"fmt"
	"log"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/panjf2000/gnet/v2"

	"github.com/loopwheel/loopwheel/bench/internal/measure"
	"github.com/loopwheel/loopwheel/loop"
)

var servers = []struct {
	name  string
	serve func() error
}{
	{"EngineGnet", func() error { return serveLoopwheel(loop.EngineGnet) }},
	{"EngineEpoll", func() error { return serveLoopwheel(loop.EngineEpoll) }},
	{"Go's net", serveNet},
	{"gnet", func() error { return measure.RunGnet("udp", &gnetEcho{}, gnet.WithNumEventLoop(1)) }},
}

var loads = []struct {
	name         string
	peers, depth int
}{
	{"32 peers, one datagram each", 32, 1}, {"32 peers, 16 datagrams each", 32, 16},
	{"one peer, one datagram", 1, 1}, {"one peer, 16 datagrams", 1, 16},
}

func main() {
	measure.Begin("udp")
	serve := flag.String("serve", "", "used by the program itself: be this server")
	turns := flag.Int("rounds", 5, "how often each is measured")
	window := flag.Duration("for", 700*time.Millisecond, "how long each measurement takes")
	docs := flag.String("docs", "", measure.Docs)
	quick := flag.Bool("quick", false, "one short round")
	flag.Parse()
	for _, s := range servers {
		if s.name == *serve {
			go measure.Obey(nil)
			log.Fatal(s.serve())
		}
	}
	if *quick {
		measure.Preset(flag.CommandLine, map[string]string{"rounds": "1", "for": "300ms"})
	}
	results := &measure.Results{Base: "Go's net"}
	for _, load := range loads {
		for _, s := range measure.Turns(*turns, servers) {
			cpu, err := echo(s.name, load.peers, load.depth, *window)
			measure.Check(err)
			results.Add(load.name, s.name, cpu)
		}
	}
	measure.Check(results.Show("UDP", *docs))
}

// echo returns the server's CPU time for a datagram, in microseconds.
func echo(server string, peers, depth int, window time.Duration) (float64, error) {
	p, err := measure.Self(server, 1, "-serve", server)
	if err != nil {
		return 0, err
	}
	defer p.End()
	var answers atomic.Int64
	var all sync.WaitGroup
	errs := make([]error, peers)
	begun, end := p.CPU(), time.Now().Add(window)
	for i := range peers {
		all.Go(func() {
			n, err := ask(p.Addr, depth, end)
			answers.Add(int64(n))
			errs[i] = err
		})
	}
	all.Wait()
	if answers.Load() == 0 {
		return 0, errors.Join(append(errs, errors.New("no answers"))...)
	}
	return float64((p.CPU() - begun).Nanoseconds()) / 1e3 / float64(answers.Load()), errors.Join(errs...)
}

// ask sends so many datagrams at once and waits for their answers, again and again.
func ask(addr string, depth int, end time.Time) (answers int, err error) {
	c, err := net.Dial("udp", addr)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	msg, buf := make([]byte, 64), make([]byte, 100)
	for time.Now().Before(end) {
		for range depth {
			_, _ = c.Write(msg)
		}
		_ = c.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
		for range depth {
			if _, err := c.Read(buf); err != nil {
				break // one was lost
			}
			answers++
		}
	}
	return answers, nil
}

func serveLoopwheel(engine loop.Engine) error {
	return measure.Serve(&loop.Server{Addr: "udp://127.0.0.1:0", Engine: engine, NumLoops: 1, Accept: func(*loop.Conn) loop.Handler {
		return loop.HandlerFunc(func(c *loop.Conn, msg []byte) error { return c.Send(msg) })
	}})
}

func serveNet() error {
	c, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return err
	}
	fmt.Println(c.LocalAddr())
	buf := make([]byte, 1<<16)
	for {
		n, peer, err := c.ReadFromUDPAddrPort(buf)
		if err != nil {
			return err
		}
		_, _ = c.WriteToUDPAddrPort(buf[:n], peer)
	}
}

type gnetEcho struct{ gnet.BuiltinEventEngine }

func (*gnetEcho) OnTraffic(c gnet.Conn) gnet.Action {
	msg, _ := c.Next(-1)
	_, _ = c.Write(msg)
	return gnet.None
}
