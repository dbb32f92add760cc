//go:build unix

package redisgroup_test

import (
	"context"
	"errors"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/loopwheel/loopwheel/handler/redisgroup"
	"github.com/loopwheel/loopwheel/internal/redistest"
	"github.com/loopwheel/loopwheel/internal/testkit"
)

// publish publishes a message to an ordered room, and returns where its result comes.
func publish(t *testing.T, hub *redisgroup.Hub, room, text string) <-chan error {
	t.Helper()
	o, err := hub.Ordered(room)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 2)
	if err := o.BroadcastThen([]byte(text), func(_ redisgroup.Position, err error) { done <- err }); err != nil {
		t.Fatal(err)
	}
	return done
}

// ended returns a context that is done.
func ended() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// hasty is a Config whose messages are given up early. lost gets what OnError gets.
func hasty() (cfg redisgroup.Config, lost chan error) {
	cfg, lost = settled(), make(chan error, 100)
	cfg.PublishTimeout, cfg.OnError = 200*time.Millisecond, func(err error) { lost <- err }
	return cfg, lost
}

// A publisher knows within Config.PublishTimeout what has become of a message, although the client
// waits for an hour: of one in flight, one that waits for it, one before the first exchange, and a
// plain one. So does a connection that joins.
func TestPublishTimeoutWhileRedisIsMute(t *testing.T) {
	m := newMute()
	client := m.client(t)
	cfg, lost := hasty()
	open := func() *redisgroup.Hub {
		hub, err := redisgroup.Open(t.Context(), client, cfg)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = hub.Close(ended()) })
		return hub
	}
	known, fresh, plain := open(), open(), open()
	wants := func(what string, done <-chan error, want error) {
		t.Helper()
		if err := soon(t, func() error { return <-done }); !errors.Is(err, want) {
			t.Errorf("%s: got %v, want %v", what, err, want)
		}
	}
	wants("a message before", publish(t, known, "room", "0"), nil)
	joins := startNode(t, client, cfg)
	defer joins.hub.Close(ended())
	c := joins.dial()
	c.say("leave nowhere")
	c.wants("left false")
	m.silent.Store(true)
	first := publish(t, known, "room", "1")
	testkit.Eventually(t, "it is in flight", func() bool { return redisgroup.Flying(known) })
	wants("a message behind it", publish(t, known, "room", "2"), redisgroup.ErrTimeout)
	wants("a message in flight", first, redisgroup.ErrUncertain)
	wants("the first message of a Hub", publish(t, fresh, "room", "3"), redisgroup.ErrTimeout)
	g, err := plain.Group("room")
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Broadcast([]byte("4")); err != nil {
		t.Fatal(err)
	}
	wants("a plain message", lost, redisgroup.ErrUncertain)
	c.say("history room 1")
	c.until("err=" + redisgroup.ErrTimeout.Error())
	if n := known.Stats().Lost; n != 2 {
		t.Errorf("%d messages are counted as lost, want 2", n)
	}
}

// Redis stands still for longer than Config.PublishTimeout and goes on before the client gives up.
// Each publisher gets one result. A message that was given up is not published; later ones are.
func TestGivenUpBeforeRedisGoesOn(t *testing.T) {
	s := redistest.Start(t)
	cfg, _ := hasty()
	n := startNode(t, s.PatientClient(), cfg)
	fresh, err := redisgroup.Open(t.Context(), s.ClientWith(redis.Options{ReadTimeout: testkit.Patience}), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer fresh.Close(t.Context())
	c := n.dial()
	c.say("history room 0")
	c.until("gap=false")
	if err := <-publish(t, n.hub, "room", "before"); err != nil {
		t.Fatal(err)
	}
	c.until("before")
	s.Signal(syscall.SIGSTOP)
	first := publish(t, n.hub, "room", "in flight")
	testkit.Eventually(t, "it is in flight", func() bool { return redisgroup.Flying(n.hub) })
	behind, unsent := publish(t, n.hub, "room", "behind"), publish(t, fresh, "room", "unsent")
	for done, want := range map[<-chan error]error{first: redisgroup.ErrUncertain, behind: redisgroup.ErrTimeout, unsent: redisgroup.ErrTimeout} {
		if err := <-done; !errors.Is(err, want) {
			t.Errorf("got %v, want %v", err, want)
		}
	}
	s.Signal(syscall.SIGCONT)
	testkit.Eventually(t, "a message is accepted again", func() bool {
		return <-publish(t, fresh, "room", "another") == nil && <-publish(t, n.hub, "room", "end") == nil
	})
	heard := 0
	for _, line := range c.until("end") {
		switch text := line[len(line)-6:]; text {
		case "behind", "unsent":
			t.Errorf("heard what was given up: %q", line)
		case "flight":
			heard++
		}
	}
	if heard != 1 {
		t.Errorf("the message in flight was heard %d times", heard)
	}
	if len(first)+len(behind)+len(unsent) > 0 {
		t.Error("a publisher got two results")
	}
}
