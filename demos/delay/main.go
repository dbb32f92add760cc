// Command delay does things later: tasks are added over HTTP, wait in Redis, and are called back
// when they are due, by as many of these programs as there are. A page shows the queue live.
//
//	go run -C demos ./delay
//
// That has a Redis in its own process, which forgets everything when it ends; -redis ADDR uses a
// real one.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/rs/zerolog"

	"github.com/loopwheel/loopwheel/internal/cli"
	"github.com/loopwheel/loopwheel/timing/rediswheel"
)

func main() { cli.Main(run) }

// run is the program: it serves until ctx is done, and returns the exit code.
func run(ctx context.Context, args []string, out, errOut io.Writer) int {
	o, err := parse(args, out)
	if err != nil {
		return cli.Refused("delay", err, errOut)
	}
	err = serve(ctx, o, cli.Log(errOut, o.level), out)
	if listening, ok := errors.AsType[listenError](err); ok {
		return cli.CannotStart("delay", listening.error, o.network+"://"+o.addr, "tcp://127.0.0.1:8091", errOut)
	}
	if err != nil {
		fmt.Fprintf(errOut, "delay: %v\n", err)
		return 1
	}
	fmt.Fprintln(out, "delay: stopped, bye")
	return 0
}

// A listenError is why nothing listens on the address of -addr.
type listenError struct{ error }

// serve is the program without its flags.
func serve(ctx context.Context, o options, log zerolog.Logger, out io.Writer) error {
	client, what, closeRedis, err := connect(ctx, o.redis)
	if err != nil {
		return err
	}
	defer closeRedis()
	w := newWork(o, log)
	q, err := rediswheel.Open(ctx, client, w.config(o))
	if err != nil {
		return fmt.Errorf("cannot open the queue on %s: %w", what, err)
	}
	ln, err := net.Listen(o.network, o.addr)
	if err != nil {
		return listenError{err}
	}
	view := newView(q, w, what)
	srv := &http.Server{Handler: newAPI(q, view, log), ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 15 * time.Second,
		IdleTimeout: time.Minute, MaxHeaderBytes: 32 << 10}
	fmt.Fprintf(out, "delay: the queue is on %s\n", what)
	fmt.Fprintf(out, "delay: listening on http://%s/\n", ln.Addr())
	ended := make(chan error, 1)
	go func() { ended <- srv.Serve(ln) }()
	go view.watch(ctx)
	working, stopWork := context.WithCancel(ctx)
	defer stopWork()
	worked := make(chan error, 1)
	go func() { worked <- q.Run(working, w) }()

	select {
	case err = <-ended: // without being asked
		stopWork()
		return errors.Join(err, <-worked)
	case <-ctx.Done():
	}
	fmt.Fprintf(out, "delay: stopping, %d tasks are running; Ctrl-C again ends at once\n", q.Local().InFlight)
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	err = <-worked
	if srv.Shutdown(closing) != nil {
		_ = srv.Close() // pages that look on
	}
	return err
}
