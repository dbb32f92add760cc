// Command memory measures what an idle connection costs a server: resident memory, heap and heap
// objects per connection, after a collection. The servers are loopwheel with the idle timeout on,
// raw gnet, and Go's net with a read deadline. Run it in the bench directory:
//
//	go run ./memory                    # 10,000 connections, each server once
//	go run ./memory -rounds 3 -limit 1000
//	go run ./memory -conns 1000 -traffic
//	go run ./memory -where
//	go run ./memory -allocs 100000
//
// Each server runs in a process of its own, and so do its clients. Every connection has echoed one
// message before it falls silent. With -limit it fails if loopwheel's resident bytes are above
// that. With -traffic all of them then echo large frames, 16 under way on each, and fall silent
// again: what a server keeps of that is the whole process's memory compared with before.
package main

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"runtime"
	"strconv"
	"strings"

	"github.com/loopwheel/loopwheel/bench/internal/child"
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("memory: ")
	conns := flag.Int("conns", 10_000, "how many connections")
	rounds := flag.Int("rounds", 1, "how often each server is measured")
	limit := flag.Int("limit", 0, "fail if loopwheel's resident `bytes` per connection are above; 0 means no limit")
	only := flag.String("only", "", "the servers to measure, separated by commas")
	allocs := flag.Int("allocs", 0, "print where the servers allocate while they echo so `many` messages instead")
	traffic := flag.Bool("traffic", false, "measure what is kept of large traffic instead")
	where := flag.Bool("where", false, "print where the memory of idle connections was allocated instead")
	serve := flag.String("serve", "", "used by the program itself: be this server")
	client := flag.String("client", "", "used by the program itself: be the clients of this address")
	flag.Parse()
	if *where {
		runtime.MemProfileRate = 1
	}
	var err error
	switch {
	case *serve != "":
		err = beServer(*serve)
	case *client != "":
		err = beClients(*client, *conns)
	case *where:
		err = printWhere(*conns, *only)
	case *allocs > 0:
		err = printAllocs(*allocs, *only)
	case *traffic:
		err = compareTraffic(*conns, *rounds, *only)
	default:
		err = compare(*conns, *rounds, *limit, *only)
	}
	if err != nil {
		log.Fatal(err)
	}
}

// warmUp is how many connections come and go before the memory is measured for the first time: what
// a server takes once, such as the pages of its program, is not the connections'.
const warmUp = 200

// names are the servers in the order in which they take turns.
var names = []string{"loopwheel", "gnet", "net"}

// compare measures each server in each round and prints the figures.
func compare(conns, rounds, limit int, only string) error {
	fmt.Printf("%-10s %9s %9s %9s   per connection, %d of them\n", "server", "resident", "heap", "objects", conns)
	for range rounds {
		for _, name := range names {
			if !chosen(name, only) {
				continue
			}
			u, err := measure(name, conns)
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			n := int64(conns)
			fmt.Printf("%-10s %9d %9d %9.1f\n", name, u.resident/n, u.heap/n, float64(u.objects)/float64(n))
			if name == "loopwheel" && limit > 0 && u.resident/n > int64(limit) {
				return fmt.Errorf("loopwheel takes %d bytes per connection, more than %d", u.resident/n, limit)
			}
		}
	}
	return nil
}

func chosen(name, only string) bool {
	return only == "" || strings.Contains(","+only+",", ","+name+",")
}

// measure runs one server and its clients, and returns what the connections added.
func measure(name string, conns int) (added usage, err error) {
	srv, err := start("-serve", name)
	if err != nil {
		return usage{}, err
	}
	defer srv.End()
	before, err := usageOf(srv.Process)
	if err != nil {
		return usage{}, err
	}
	clients, err := connect(srv.addr, conns)
	if err != nil {
		return usage{}, err
	}
	defer clients.End()
	after, err := usageOf(srv.Process)
	return after.minus(before), err
}

// A server is one in a process of its own.
type server struct {
	*child.Process
	addr string
}

// start starts a server, to which some connections come and go.
func start(args ...string) (server, error) {
	p, err := child.Spawn(args...)
	if err != nil {
		return server{}, err
	}
	addr, err := p.Line()
	if err != nil {
		return server{}, err
	}
	warm, err := connect(addr, warmUp)
	if err != nil {
		return server{}, err
	}
	warm.End()
	return server{p, addr}, nil
}

// connect starts clients and waits until all their connections are open.
func connect(addr string, conns int) (*child.Process, error) {
	p, err := child.Spawn("-client", addr, "-conns", strconv.Itoa(conns))
	if err != nil {
		return nil, err
	}
	_, err = p.Line()
	return p, err
}

// usageOf asks the server what it uses now.
func usageOf(server *child.Process) (u usage, err error) {
	s, err := server.Ask("")
	if err != nil {
		return u, err
	}
	_, err = fmt.Sscan(s, &u.resident, &u.heap, &u.objects)
	return u, err
}

// beServer prints its address, and for each line of input what it uses.
func beServer(name string) error {
	start, ok := servers[name]
	if !ok {
		return fmt.Errorf("no server %q", name)
	}
	addr, err := start()
	if err != nil {
		return err
	}
	fmt.Println(addr)
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		if strings.HasPrefix(in.Text(), whereRequest) {
			fmt.Println(answerWhere(in.Text()))
			continue
		}
		u, err := current()
		if err != nil {
			return err
		}
		fmt.Println(u.resident, u.heap, u.objects)
	}
	return nil
}

// beClients opens the connections, has each echo a message, says so, and waits for the end.
func beClients(addr string, conns int) error {
	msg := []byte("\x00\x00\x00\x05hello")
	answer := make([]byte, len(msg))
	var all []net.Conn
	for range conns {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			return err
		}
		defer c.Close()
		all = append(all, c)
		if _, err := c.Write(msg); err != nil {
			return err
		}
		if _, err := io.ReadFull(c, answer); err != nil {
			return err
		}
		if string(answer) != string(msg) {
			return errors.New("that is no echo")
		}
	}
	fmt.Println("open")
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		if err := echoMuch(all); err != nil {
			return err
		}
		fmt.Println("echoed")
	}
	return nil
}
