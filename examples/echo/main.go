// Command echo sends each line back. It asks silent peers whether they are still there, evicts them
// in the end, and answers "later TEXT" with TEXT after three seconds.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/rs/zerolog"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/loop"
)

func main() {
	addr := flag.String("addr", "tcp://127.0.0.1:7000", "listen on this `address`: tcp://host:port, unix://path or udp://host:port")
	idle := flag.Duration("idle", time.Minute, "evict a connection that is silent for this `duration`; 0 means never")
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "echo: unexpected arguments: %q\n", flag.Args())
		os.Exit(2)
	}
	if *idle < 0 {
		fmt.Fprintf(os.Stderr, "echo: -idle %v is negative\n", *idle)
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	if err := run(ctx, newServer(*addr, *idle)); err != nil {
		fmt.Fprintln(os.Stderr, "echo:", err)
		os.Exit(1)
	}
}

func newServer(addr string, idle time.Duration) *loop.Server {
	srv := &loop.Server{
		Addr:        addr,
		IdleTimeout: idle,
		Logger:      zerolog.New(os.Stderr).With().Timestamp().Logger(),
		Accept: func(c *loop.Conn) loop.Handler {
			if idle > 0 {
				c.OnIdle(loop.IdleRead, idle*2/3, func(int) { _ = c.Send([]byte("are you still there?")) })
			}
			return &session{}
		},
	}
	if !strings.HasPrefix(addr, "udp") { // a datagram is a message
		srv.Codec = codec.Lines{}
	}
	return srv
}

// run serves until ctx is done and all connections have been drained.
func run(ctx context.Context, srv *loop.Server) error {
	if srv.Addr == "" {
		return errors.New("-addr is empty")
	}
	if err := srv.Start(ctx); err != nil {
		return fmt.Errorf("-addr %s: %w", srv.Addr, err)
	}
	fmt.Printf("echo: listening on %s://%s\n", srv.LocalAddr().Network(), srv.LocalAddr())
	switch a := srv.LocalAddr().(type) {
	case *net.TCPAddr:
		fmt.Printf("echo: connect with: nc %s %d\n", a.IP, a.Port)
	case *net.UDPAddr:
		fmt.Printf("echo: connect with: nc -u %s %d\n", a.IP, a.Port)
	}
	err := srv.Wait()
	fmt.Println("echo: drained, bye")
	return err
}

// A session is the state of one connection. It needs no lock: all that happens to a connection
// happens on the goroutine of its loop.
type session struct{ lines int }

func (s *session) OnMessage(c *loop.Conn, line []byte) error {
	s.lines++
	if text, ok := bytes.CutPrefix(line, []byte("later ")); ok {
		text = bytes.Clone(text) // line is valid until OnMessage returns
		c.AfterFunc(3*time.Second, func() { _ = c.Send(text) })
		return nil
	}
	return c.Send(line)
}

func (s *session) OnClose(c *loop.Conn, err error) { // err is loop.ErrIdle, io.EOF, ...
	c.Log().Info().AnErr("reason", err).Int("lines", s.lines).Msg("closed")
}
