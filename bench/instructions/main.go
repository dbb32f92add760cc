// Command instructions is one echo server of several, and their client, for counting the
// instructions that a server spends in user space on one message. The script run beside it does the
// counting.
//
// As a server it prints its address, echoes frames of a 4-byte length and as many bytes, and exits
// when the first of its connections closes.
package main

import (
	"bytes"
	"encoding/binary"
	"flag"
	"fmt"
	"io"
	"log"
	"maps"
	"net"
	"os"
	"slices"
	"strings"
	"time"
)

// idleTimeout is what each server enforces that has one. Nothing is silent for as long here.
const idleTimeout = time.Minute

// header is the size of a frame's length field.
const header = 4

// peers are the servers. Each prints its address with listening, serves until quit is called, and
// returns only when it cannot.
var peers = map[string]func() error{
	"loopwheel":     serveLoopwheel,
	"loopwheel-all": serveGuarded,
	"gnet":          serveGnet,
	"gnet-whole":    serveGnetWhole,
	"gnet-scan":     serveGnetScan,
	"net":           serveNet,
}

func main() {
	log.SetFlags(0)
	log.SetPrefix("instructions: ")
	peer := flag.String("peer", "", "serve as `one` of "+strings.Join(slices.Sorted(maps.Keys(peers)), ", "))
	client := flag.String("client", "", "be the client of the server at this `address`")
	n := flag.Int("n", 1000, "how many messages the client sends on each connection")
	conns := flag.Int("conns", 50, "how many connections the client has")
	depth := flag.Int("depth", 1, "how many messages the client sends at once")
	size := flag.Int("size", 64, "how many bytes a message of the client has")
	flag.Parse()
	var err error
	if serve := peers[*peer]; serve != nil {
		err = serve()
	} else if *client != "" {
		err = ping(*client, *conns, *n, *depth, *size)
	} else {
		flag.Usage()
		os.Exit(2)
	}
	if err != nil {
		log.Fatal(err)
	}
}

// listening tells the script where to send the client.
func listening(addr string) { fmt.Println(addr) }

// quit ends a server, so that callgrind writes what it has counted.
func quit() { os.Exit(0) }

// ping sends n messages of so many bytes on each connection: in rounds, depth at once on each, and
// when all have come back the next. So the server always finds several connections readable at
// once, as one under load does. With a single connection it would be put to sleep and woken for
// each message, which costs several times as much in Go's scheduler as all the rest, and not twice
// the same.
func ping(addr string, conns, n, depth, size int) error {
	msg := binary.BigEndian.AppendUint32(nil, uint32(size))
	msg = bytes.Repeat(append(msg, strings.Repeat("x", size)...), depth)
	cs := make([]net.Conn, conns)
	for i := range cs {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			return err
		}
		defer c.Close()
		cs[i] = c
	}
	for range n / depth {
		if err := round(cs, msg); err != nil {
			return err
		}
	}
	return nil
}

func round(cs []net.Conn, msg []byte) error {
	for _, c := range cs {
		if _, err := c.Write(msg); err != nil {
			return err
		}
	}
	answer := make([]byte, len(msg))
	for _, c := range cs {
		if _, err := io.ReadFull(c, answer); err != nil {
			return err
		}
		if !bytes.Equal(answer, msg) {
			return fmt.Errorf("sent %q, got %q", msg, answer)
		}
	}
	return nil
}
