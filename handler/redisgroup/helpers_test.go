package redisgroup_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/handler/redisgroup"
	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop"
)

// A node is a process with a Hub, as far as Redis can tell: a server for lines, in which each line
// is a command.
type node struct {
	t   testing.TB
	hub *redisgroup.Hub
	srv *loop.Server

	mu   sync.Mutex
	errs []error
	stop func()
}

func startNode(t testing.TB, client redis.UniversalClient, cfg redisgroup.Config) *node {
	t.Helper()
	n := &node{t: t}
	if cfg.Form == nil {
		cfg.Form = form
	}
	cfg.OnGap = func(c *loop.Conn, g *redisgroup.Gap) {
		_ = c.Send(fmt.Appendf(nil, "gap %s %v %v", g.Room, g.From, g.To))
	}
	if cfg.OnError == nil {
		cfg.OnError = func(err error) {
			n.mu.Lock()
			defer n.mu.Unlock()
			n.errs = append(n.errs, err)
		}
	}
	var err error
	for deadline := time.Now().Add(testkit.Patience); ; { // some clients do not wait for long
		if n.hub, err = redisgroup.Open(t.Context(), client, cfg); err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
	n.srv = &loop.Server{
		Addr: "tcp://127.0.0.1:0", NumLoops: 2, Codec: codec.Lines{Max: 1 << 20}, Limits: loop.Limits{MaxOutbound: 16 << 20},
		Accept: func(*loop.Conn) loop.Handler { return loop.HandlerFunc(n.command) },
	}
	ctx, cancel := context.WithCancel(context.Background())
	if err := n.srv.Start(ctx); err != nil {
		t.Fatal(err)
	}
	n.stop = sync.OnceFunc(func() {
		cancel()
		_ = n.srv.Wait()
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_ = n.hub.Close(ctx)
	})
	t.Cleanup(n.stop)
	return n
}

func form(e redisgroup.Entry) []byte {
	switch e.Kind {
	case redisgroup.Joined:
		return fmt.Appendf(nil, "in %s %v %s", e.Room, e.Position, e.User)
	case redisgroup.Left:
		return fmt.Appendf(nil, "out %s %v %s", e.Room, e.Position, e.User)
	}
	return fmt.Appendf(nil, "msg %s %v %s", e.Room, e.Position, e.Data)
}

// command carries out a line: what to do, a room or user, and the rest.
func (n *node) command(c *loop.Conn, line []byte) error {
	f := append(strings.SplitN(string(line), " ", 3), "", "")
	g, err := n.hub.Group(f[1])
	if err != nil {
		return c.Send([]byte(err.Error()))
	}
	o, _ := n.hub.Ordered(f[1])
	text := []byte(f[2])
	switch f[0] {
	case "join":
		return c.Send(fmt.Appendf(nil, "joined %v", g.Join(c)))
	case "leave":
		return c.Send(fmt.Appendf(nil, "left %v", g.Leave(c)))
	case "say":
		err = g.Broadcast(text)
	case "others":
		err = g.BroadcastExcept(c.Ref(), text)
	case "ojoin":
		return c.Send(fmt.Appendf(nil, "joined %v", o.Join(c)))
	case "oleave":
		return c.Send(fmt.Appendf(nil, "left %v", o.Leave(c)))
	case "osay":
		err = o.Broadcast(text)
	case "oothers":
		err = o.BroadcastExcept(c.Ref(), text)
	case "history":
		k, _ := strconv.Atoi(f[2])
		o.JoinFrom(c, redisgroup.From{History: k}, arrived)
	case "since":
		p, err := redisgroup.ParsePosition(f[2])
		if err != nil {
			return err
		}
		o.JoinFrom(c, redisgroup.From{Since: p}, arrived)
	case "bind":
		if err = n.hub.Bind(c, f[1]); err == nil {
			return c.Send([]byte("bound"))
		}
	case "claim", "flinch":
		err = n.hub.ClaimFor(c, f[1], f[2], func(c *loop.Conn, err error) { _ = c.Send(fmt.Appendf(nil, "claimed %s %v", f[1], err)) })
		if f[0] == "flinch" {
			n.hub.ReleaseFor(c, f[1], f[2])
		}
	case "unclaim":
		n.hub.ReleaseFor(c, f[1], f[2])
	case "send":
		err = n.hub.Send(f[1], text)
	case "kick":
		err = n.hub.Kick(f[1], f[2])
	}
	if err != nil {
		return c.Send([]byte(err.Error()))
	}
	return nil
}

func arrived(c *loop.Conn, a redisgroup.Arrival) {
	_ = c.Send(fmt.Appendf(nil, "arrived %v %d gap=%v who=%d err=%v", a.Position, a.Replay, a.Gap != nil, len(a.Who), a.Err))
}

// A client is a connection to a node.
type client struct {
	t testing.TB
	net.Conn
	in *bufio.Reader
}

func (n *node) dial() *client {
	n.t.Helper()
	c, err := net.Dial("tcp", n.srv.LocalAddr().String())
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { c.Close() })
	return &client{n.t, c, bufio.NewReader(c)}
}

func (c *client) say(format string, args ...any) {
	c.t.Helper()
	if _, err := fmt.Fprintf(c.Conn, format+"\n", args...); err != nil {
		c.t.Fatal(err)
	}
}

// hear returns the next line.
func (c *client) hear() string {
	c.t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(testkit.Patience))
	line, err := c.in.ReadString('\n')
	if err != nil {
		c.t.Fatalf("hearing: %v, after %q", err, line)
	}
	return strings.TrimSuffix(line, "\n")
}

func (c *client) wants(want string) {
	c.t.Helper()
	if got := c.hear(); got != want {
		c.t.Fatalf("heard %q, want %q", got, want)
	}
}

// until hears until a line has what is wanted, and returns all of them.
func (c *client) until(want string) (all []string) {
	c.t.Helper()
	for {
		line := c.hear()
		all = append(all, line)
		if strings.Contains(line, want) {
			return all
		}
	}
}

// silent fails if anything comes for a moment.
func (c *client) silent() {
	c.t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
	line, err := c.in.ReadString('\n')
	if err == nil || !errors.Is(err, error(err.(net.Error))) || !err.(net.Error).Timeout() {
		c.t.Fatalf("heard %q, %v; want silence", line, err)
	}
}
