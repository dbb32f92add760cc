//go:build linux

// Command load measures a chat server with many WebSocket clients in rooms: each second one member
// of each room says something, and every member must get it once, in order. The servers, in turns,
// are demos/chat and the same chat on gorilla/websocket with two goroutines per connection. It
// fills the table A chat over WebSocket of docs/performance.md:
//
//	go run ./websocket/load          # two minutes and a half
//	go run ./websocket/load -quick
package main

import (
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/loopwheel/loopwheel/bench/internal/measure"
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("load: ")
	serve := flag.Bool("serve-gorilla", false, "used by the program itself: be that server")
	servers := flag.String("servers", "loopwheel,gorilla/websocket", "`servers` to measure, by commas")
	conns := flag.Int("conns", 10_000, "clients")
	rooms := flag.Int("rooms", 100, "rooms that they are spread over")
	rounds := flag.Int("rounds", 1, "how often each is measured")
	during := flag.Duration("for", time.Minute, "how long to talk")
	docs := flag.String("docs", "", measure.Docs)
	quick := flag.Bool("quick", false, "1,000 clients in ten rooms for five seconds")
	flag.Parse()
	if *serve {
		log.Fatal(serveGorilla())
	}
	if *quick {
		*conns, *rooms, *during = 1000, 10, 5*time.Second
	}
	dir, err := os.MkdirTemp("", "chat-")
	if err != nil {
		log.Fatal(err)
	}
	results := &measure.Results{Base: "gorilla/websocket"}
	for range *rounds {
		for name := range strings.SplitSeq(*servers, ",") {
			if err = run(dir, name, *conns, *rooms, *during, results); err != nil {
				break
			}
		}
	}
	_ = os.RemoveAll(dir)
	if err != nil {
		log.Fatal(err)
	}
	if err := results.Show("chat", *docs); err != nil {
		log.Fatal(err)
	}
}

// run measures a server once.
func run(dir, name string, conns, rooms int, during time.Duration, results *measure.Results) error {
	cmd, err := command(dir, name)
	if err != nil {
		return err
	}
	server, err := measure.Start(name, cmd)
	if err != nil {
		return err
	}
	defer server.End()
	_, addr, ok := strings.Cut(server.Addr, "http://")
	if !ok {
		return fmt.Errorf("%s says %q", name, server.Addr)
	}
	empty := server.Resident()
	c := newCrowd(strings.TrimSuffix(addr, "/"), conns, rooms)
	if err := c.connect(); err != nil {
		return err
	}
	time.Sleep(3 * time.Second) // until the joins have been told to all
	cpu := server.CPU()
	c.talk(during)
	cpu = server.CPU() - cpu
	late, err := c.end()
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	for _, q := range []struct {
		name string
		q    float64
	}{{"median", .5}, {"p99", .99}, {"p99.9", .999}, {"worst", 1}} {
		results.Add("delivered: "+q.name+", ms", name, float64(measure.Quantile(late, q.q))/1e6)
	}
	results.Add("CPU per delivery, µs", name, float64(cpu.Nanoseconds())/1e3/float64(len(late)))
	results.Add("memory per connection, KB", name, float64(server.Resident()-empty)/1024/float64(conns))
	return nil
}

// command returns the command that runs a server on a free port and prints its address.
func command(dir, server string) (*exec.Cmd, error) {
	if server != "loopwheel" {
		return exec.Command(os.Args[0], "-serve-gorilla"), nil
	}
	path := filepath.Join(dir, "chat")
	build := exec.Command("go", "build", "-C", "../demos", "-o", path, "./chat") // from bench/
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		return nil, err
	}
	return exec.Command(path, "-addr", "tcp://127.0.0.1:0", "-lines", "tcp://127.0.0.1:0",
		"-rate", "1000", "-idle", "1h", "-ping", "1h", "-history", "0", "-log", "error"), nil
}
