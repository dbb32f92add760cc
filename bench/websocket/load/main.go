// Command load measures a chat server with many WebSocket clients in rooms: each second one member
// of each room says something, and every member must get it once, in order. The server is another
// process: demos/chat, or the same chat on gorilla/websocket with a goroutine or two per
// connection.
//
//	go run ./websocket/load -server loopwheel
//	go run ./websocket/load -server gorilla
package main

import (
	"bufio"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

func main() {
	server := flag.String("server", "loopwheel", "loopwheel, gorilla, or serve-gorilla to be that server")
	conns := flag.Int("conns", 10_000, "clients")
	rooms := flag.Int("rooms", 100, "rooms that they are spread over")
	during := flag.Duration("for", time.Minute, "how long to talk")
	flag.Parse()
	var err error
	if *server == "serve-gorilla" {
		err = serveGorilla()
	} else {
		err = measure(*server, *conns, *rooms, *during)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "load:", err)
		os.Exit(1)
	}
}

func measure(server string, conns, rooms int, during time.Duration) error {
	cmd, err := command(server)
	if err != nil {
		return err
	}
	addr, err := startServer(cmd)
	if err != nil {
		return err
	}
	defer func() {
		_ = cmd.Process.Signal(os.Interrupt)
		_ = cmd.Wait()
	}()
	before, err := usageOf(cmd.Process.Pid)
	if err != nil {
		return err
	}
	began := time.Now()
	c := newCrowd(addr, conns, rooms)
	if err := c.connect(); err != nil {
		return err
	}
	joined := time.Since(began)
	time.Sleep(3 * time.Second) // until the joins have been told to all
	start, err := usageOf(cmd.Process.Pid)
	if err != nil {
		return err
	}
	c.talk(during)
	end, err := usageOf(cmd.Process.Pid)
	if err != nil {
		return err
	}
	fmt.Printf("%s: %d clients in %d rooms, connected in %v\n", server, conns, rooms, joined.Round(time.Millisecond))
	if err := c.report(); err != nil {
		return err
	}
	cpu := end.cpu - start.cpu
	fmt.Printf("  server CPU: %.1f %% of one, %.1f us per message delivered\n",
		100*cpu.Seconds()/during.Seconds(), float64(cpu.Microseconds())/float64(c.delivered.Load()))
	fmt.Printf("  server memory: %d KiB more than without clients, %d bytes per connection\n", (end.rss-before.rss)>>10, (end.rss-before.rss)/conns)
	return nil
}

// command returns the command that runs a server on a free port and prints its address.
func command(server string) (*exec.Cmd, error) {
	if server == "gorilla" {
		return exec.Command(os.Args[0], "-server", "serve-gorilla"), nil
	}
	path := filepath.Join(os.TempDir(), fmt.Sprintf("chat-%d", os.Getpid()))
	build := exec.Command("go", "build", "-C", "../demos", "-o", path, "./chat") // from bench/
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		return nil, err
	}
	return exec.Command(path, "-addr", "tcp://127.0.0.1:0", "-lines", "tcp://127.0.0.1:0",
		"-rate", "1000", "-idle", "1h", "-ping", "1h", "-history", "0", "-log", "error"), nil
}

func startServer(cmd *exec.Cmd) (addr string, err error) {
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return "", err
	}
	if err := cmd.Start(); err != nil {
		return "", err
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	_, addr, ok := strings.Cut(line, "http://")
	if err != nil || !ok {
		return "", fmt.Errorf("the server says %q, %v", line, err)
	}
	return strings.TrimRight(addr, "/\n"), nil
}

// usage is what a process has used.
type usage struct {
	cpu time.Duration
	rss int // bytes
}

func usageOf(pid int) (u usage, err error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return u, err
	}
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	for _, i := range []int{11, 12} { // utime and stime, in ticks of 10 ms
		n, err := strconv.Atoi(fields[i])
		if err != nil {
			return u, err
		}
		u.cpu += time.Duration(n) * 10 * time.Millisecond
	}
	pages, err := strconv.Atoi(fields[21])
	u.rss = pages * os.Getpagesize()
	return u, err
}
