package rediswheel_test

import (
	"bufio"
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/handler"
	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/timing/rediswheel"
)

var (
	_ rediswheel.Teller[func(*loop.Conn)] = loop.Ref{}
	_ rediswheel.Teller[string]           = handler.ActorRef[string]{}
)

func handle(t *testing.T, h rediswheel.Handler, task rediswheel.Task) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return h.Handle(ctx, task)
}

// A real server: its loop, a connection and an actor are given tasks.
func TestDeliverToLoop(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	refs := make(chan loop.Ref, 1)
	srv := &loop.Server{Addr: "tcp://127.0.0.1:0", Codec: codec.Lines{}, Accept: func(c *loop.Conn) loop.Handler {
		refs <- c.Ref()
		return loop.HandlerFunc(func(*loop.Conn, []byte) error { return nil })
	}}
	if err := srv.Start(ctx); err != nil {
		t.Fatal(err)
	}
	defer func() {
		cancel()
		_ = srv.Wait()
	}()
	l := srv.Loops()[0]
	var on *loop.Loop
	posted := rediswheel.Posted(l.Post, func(task rediswheel.Task) error {
		on = l
		return errors.New(task.Key)
	})
	if err := handle(t, posted, rediswheel.Task{Key: "k"}); err == nil || err.Error() != "k" || on != l {
		t.Error(err)
	}
	toConn(t, srv, refs)
	toActor(t, l)
}

func toConn(t *testing.T, srv *loop.Server, refs chan loop.Ref) {
	c, err := net.Dial("tcp", srv.LocalAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	ref := <-refs
	told := rediswheel.Told(
		func(rediswheel.Task) (rediswheel.Teller[func(*loop.Conn)], error) { return ref, nil },
		func(task rediswheel.Task, done func(error)) func(*loop.Conn) {
			return func(c *loop.Conn) { done(c.Send(task.Body)) }
		})
	if err := handle(t, told, rediswheel.Task{Body: []byte("wake up")}); err != nil {
		t.Error(err)
	}
	line, err := bufio.NewReader(c).ReadString('\n')
	if line != "wake up\n" {
		t.Error(line, err)
	}
	c.Close()
	testkit.Eventually(t, "the server notices that the connection is closed", func() bool {
		return errors.Is(ref.Tell(func(*loop.Conn) {}), loop.ErrClosed)
	})
	if err := handle(t, told, rediswheel.Task{}); !errors.Is(err, loop.ErrClosed) {
		t.Error(err)
	}
}

// A command is a message to an actor that wants an answer.
type command struct {
	text string
	done func(error)
}

func toActor(t *testing.T, l *loop.Loop) {
	var got []string
	actor, err := handler.Spawn(l, func(*handler.Actor[command]) func(command) {
		return func(c command) {
			got = append(got, c.text)
			c.done(nil)
			c.done(errors.New("ignored"))
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	told := rediswheel.Told(
		func(rediswheel.Task) (rediswheel.Teller[command], error) { return actor, nil },
		func(task rediswheel.Task, done func(error)) command { return command{string(task.Body), done} })
	if err := handle(t, told, rediswheel.Task{Body: []byte("open the door")}); err != nil || len(got) != 1 {
		t.Error(err, got)
	}
}

// What cannot be posted is put off; what nobody waits for any more does not run; a panic is an
// error.
func TestPosted(t *testing.T) {
	full := errors.New("mailbox full")
	h := rediswheel.Posted(func(func()) error { return full }, func(rediswheel.Task) error { return nil })
	if err := handle(t, h, rediswheel.Task{}); !errors.Is(err, full) {
		t.Error(err)
	}
	var kept func()
	ran := false
	h = rediswheel.Posted(func(f func()) error { kept = f; return nil }, func(rediswheel.Task) error { ran = true; return nil })
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := h.Handle(ctx, rediswheel.Task{}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if kept(); ran {
		t.Error("it ran though nobody waited")
	}
	panics := func(f func()) error {
		go func() {
			defer func() { _ = recover() }()
			f()
		}()
		return nil
	}
	h = rediswheel.Posted(panics, func(rediswheel.Task) error { panic("oh") })
	if err := handle(t, h, rediswheel.Task{}); err == nil {
		t.Error("a panic passed for success")
	}
}
