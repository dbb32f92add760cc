// Command kv is a small server for Redis clients. It shows three things: keys that are sharded over
// the loops of a server, the wheel of each loop, which expires them, and calls that cross loops.
// Start reading at session.go. README.md lists the commands.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"hash/maphash"
	"io"
	"net"
	"os"
	"os/signal"
	"syscall"

	"github.com/rs/zerolog"

	"github.com/loopwheel/loopwheel/handler"
	"github.com/loopwheel/loopwheel/loop"
)

func main() {
	addr := flag.String("addr", "tcp://127.0.0.1:6380", "listen on this `address`: tcp://host:port or unix://path")
	loops := flag.Int("loops", 0, "shard the keys over this `number` of loops; 0 leaves one core to other goroutines")
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "kv: there are arguments besides the flags: %q\n", flag.Args())
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	if err := run(ctx, newServer(*addr, *loops).net, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "kv:", err)
		os.Exit(1)
	}
}

// run serves until ctx is done and all connections have been drained.
func run(ctx context.Context, srv *loop.Server, out io.Writer) error {
	srv.Logger = zerolog.New(os.Stderr).With().Timestamp().Logger()
	if srv.Addr == "" {
		return errors.New("-addr is empty")
	}
	if err := srv.Start(ctx); err != nil {
		return fmt.Errorf("with -addr %s and -loops %d: %w", srv.Addr, srv.NumLoops, err)
	}
	fmt.Fprintf(out, "kv: listening on %s://%s\n", srv.LocalAddr().Network(), srv.LocalAddr())
	if tcp, ok := srv.LocalAddr().(*net.TCPAddr); ok {
		fmt.Fprintf(out, "kv: connect with: redis-cli -h %s -p %d\n", tcp.IP, tcp.Port)
	}
	err := srv.Wait()
	fmt.Fprintln(out, "kv: drained, bye")
	return err
}

// A server is what the sessions share.
type server struct {
	net  *loop.Server
	seed maphash.Seed // secret: no client can choose keys that all hash to one loop
}

// newServer returns a server that listens on addr. loops is the number of loops, 0 for the default.
func newServer(addr string, loops int) *server {
	s := &server{seed: maphash.MakeSeed()}
	s.net = &loop.Server{
		Addr:     addr,
		Codec:    &requests{},
		NumLoops: loops,
		Limits:   loop.Limits{MaxFrame: maxRequest + maxLine, Refusal: appendError(nil, "ERR max number of clients reached")},
		Accept:   s.accept,
	}
	return s
}

func (s *server) accept(c *loop.Conn) loop.Handler {
	replies := handler.NewReplies(c, handler.RepliesConfig{MaxWaiting: maxWaiting})
	c.OnEOF(func() { replies.CloseAfter(io.EOF) }) // what a client sent before its end is answered
	return &session{s, c, c.Codec().(*requests), replies, s.net.Loops(), shardOf(c.Loop())}
}
