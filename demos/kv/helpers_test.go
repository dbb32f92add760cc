package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/loop/looptest"
)

// startMemory starts a server of so many loops in memory and virtual time.
func startMemory(t *testing.T, loops int) *looptest.Server {
	t.Helper()
	return looptest.Start(t, newServer("", loops).net)
}

// start starts a server of so many loops on a real socket, and returns its address.
func start(t *testing.T, loops int) string {
	t.Helper()
	srv := newServer("tcp://127.0.0.1:0", loops).net
	if err := srv.Start(t.Context()); err != nil { // which is done before the cleanup
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := srv.Wait(); err != nil {
			t.Errorf("Wait() = %v, want nil", err)
		}
	})
	return srv.LocalAddr().String()
}

// wire returns a request on the wire.
func wire(args ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(args))
	for _, a := range args {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(a), a)
	}
	return b.String()
}

// do sends commands as one packet, and returns all replies.
func do(p *looptest.Peer, commands ...string) string {
	p.Send(strings.Join(commands, ""))
	return p.Received()
}

// want checks the replies to commands, which are words separated by spaces, each sent by itself.
func want(t *testing.T, p *looptest.Peer, commands ...string) {
	t.Helper()
	for i := 0; i < len(commands); i += 2 {
		if got := do(p, wire(strings.Fields(commands[i])...)); got != commands[i+1] {
			t.Errorf("%s: got %q, want %q", commands[i], got, commands[i+1])
		}
	}
}

// A client is the other end of a connection to this server or to redis-server.
type client struct {
	net.Conn
	in *bufio.Reader
}

// dial connects to host:port, or to the path of a unix socket.
func dial(t *testing.T, addr string) *client {
	t.Helper()
	network := "tcp"
	if strings.HasPrefix(addr, "/") {
		network = "unix"
	}
	c, err := net.Dial(network, addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if err := c.SetDeadline(time.Now().Add(5 * time.Minute)); err != nil {
		t.Fatal(err)
	}
	return &client{c, bufio.NewReaderSize(c, 64<<10)}
}

// send sends bytes, while replies are read.
func (c *client) send(text string) {
	go func() { _, _ = io.WriteString(c, text) }()
}

// read returns the next reply as it came.
func (c *client) read(t *testing.T) string {
	t.Helper()
	reply, err := readReply(c.in)
	if err != nil {
		t.Fatalf("reading a reply: %v, after %q", err, reply)
	}
	return reply
}

// readReply reads one whole reply, of any depth.
func readReply(in *bufio.Reader) (string, error) {
	line, err := in.ReadString('\n')
	if err != nil {
		return line, err
	}
	if !strings.HasSuffix(line, "\r\n") || len(line) < 3 {
		return line, errors.New("this is not the first line of a reply")
	}
	switch line[0] {
	case '+', '-', ':':
		return line, nil
	case '$', '*':
	default:
		return line, errors.New("this is not a type of RESP2")
	}
	n, err := strconv.Atoi(line[1 : len(line)-2])
	if err != nil || n < 0 {
		return line, err
	}
	if line[0] == '$' {
		value := make([]byte, n+2)
		_, err := io.ReadFull(in, value)
		return line + string(value), err
	}
	for range n {
		element, err := readReply(in)
		line += element
		if err != nil {
			return line, err
		}
	}
	return line, nil
}

// strings returns the elements of an array of bulk strings.
func elements(reply string) (of []string, err error) {
	in := bufio.NewReader(strings.NewReader(reply))
	if _, err := in.ReadString('\n'); err != nil {
		return nil, err
	}
	for {
		element, err := readReply(in)
		if err == io.EOF {
			return of, nil
		}
		if err != nil {
			return nil, err
		}
		_, element, _ = strings.Cut(element, "\r\n")
		of = append(of, strings.TrimSuffix(element, "\r\n"))
	}
}
