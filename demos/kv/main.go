// Command kv is a server that speaks the Redis protocol and keeps its keys in plain Go maps: a
// whole program to copy from when you want a store, cache, queue or gateway of your own behind a
// protocol that every language has clients for. README.md says what it can do and how it is built.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/loopwheel/loopwheel/internal/cli"
	"github.com/loopwheel/loopwheel/loop"
)

func main() { cli.Main(run) }

// run is the program: it serves until ctx is done, and returns the exit code.
func run(ctx context.Context, args []string, out, errOut io.Writer) int {
	o, err := parse(args, out)
	if err != nil {
		return cli.Refused("kv", err, errOut)
	}
	log := cli.Log(errOut, o.level)
	tuneGC(o)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s := newServer(o, log, cancel)
	if err := s.load(); err != nil {
		fmt.Fprintf(errOut, "kv: %v\n", err)
		return 1
	}
	if err := s.net.Start(ctx); err != nil {
		_ = s.close()
		return cli.CannotStart("kv", err, o.addr, "tcp://127.0.0.1:6381", errOut)
	}
	fmt.Fprintf(out, "kv: listening on %s://%s\n", s.net.LocalAddr().Network(), s.net.LocalAddr())
	fmt.Fprintf(out, "kv: connect with: %s\n", redisCLI(s.net.LocalAddr()))
	return s.serve(ctx, out, errOut)
}

// serve waits until ctx is done and the server has ended.
func (s *server) serve(ctx context.Context, out, errOut io.Writer) int {
	err := cli.Wait(ctx, s.net.Wait, func() {
		fmt.Fprintf(out, "kv: draining %d connections; Ctrl-C again ends at once\n", s.net.Stats().Conns)
	})
	if err := errors.Join(err, s.close()); err != nil {
		fmt.Fprintf(errOut, "kv: %v\n", err)
		return 1
	}
	fmt.Fprintln(out, "kv: drained, bye")
	return 0
}

// redisCLI returns the command that connects to addr.
func redisCLI(addr net.Addr) string {
	tcp, ok := addr.(*net.TCPAddr)
	switch {
	case !ok:
		return "redis-cli -s " + addr.String()
	case tcp.IP.IsUnspecified():
		return fmt.Sprintf("redis-cli -p %d", tcp.Port)
	}
	return fmt.Sprintf("redis-cli -h %s -p %d", tcp.IP, tcp.Port)
}

// compile-time check: what a session is to the loop.
var _ loop.Handler = (*session)(nil)
