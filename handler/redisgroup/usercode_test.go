package redisgroup_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/loopwheel/loopwheel/handler/redisgroup"
	"github.com/loopwheel/loopwheel/internal/testkit"
)

// Config.Form and Config.OnError may speak to the room that they are called for: no lock of it is
// held.
func TestFormAndOnErrorMaySpeak(t *testing.T) {
	var hub atomic.Pointer[redisgroup.Hub]
	say := func(text string) {
		o, err := hub.Load().Ordered("room")
		if err == nil {
			err = o.Broadcast([]byte(text))
		}
		if err != nil {
			t.Error(err)
		}
	}
	cfg := settled()
	cfg.Form = func(e redisgroup.Entry) []byte {
		switch text := string(e.Data); {
		case e.Replayed:
		case text == "ask":
			say("answer")
		case text == "panic":
			panic("as it was told")
		}
		return form(e)
	}
	cfg.OnError = func(error) { say("sorry") }
	n := startNode(t, startMini(t)(), cfg)
	hub.Store(n.hub)
	c := n.dial()
	c.say("history room 0")
	c.until("arrived")
	c.say("osay room ask")
	c.until("answer")
	c.say("osay room panic")
	c.until("sorry")
	d := n.dial()
	d.say("history room 3") // the one that panicked is in the past, too: it does not now
	d.until(" panic")
	d.until("sorry")
}

// What a Hub could not publish until it was closed has an outcome, too.
func TestCloseTellsWhatIsLost(t *testing.T) {
	m := miniredis.RunT(t)
	client := redis.NewClient(&redis.Options{Addr: m.Addr()})
	defer client.Close()
	hub, err := redisgroup.Open(t.Context(), client, settled())
	if err != nil {
		t.Fatal(err)
	}
	room, err := hub.Ordered("room")
	if err != nil {
		t.Fatal(err)
	}
	m.Close()
	var mu sync.Mutex
	var got []error
	const said = 3
	for range said {
		err := room.BroadcastThen([]byte("x"), func(_ redisgroup.Position, err error) {
			mu.Lock()
			defer mu.Unlock()
			got = append(got, err)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := hub.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Close: %v", err)
	}
	mu.Lock()
	defer mu.Unlock()
	for _, err := range got {
		if !errors.Is(err, redisgroup.ErrClosed) && !errors.Is(err, redisgroup.ErrUncertain) {
			t.Errorf("an outcome was %v", err)
		}
	}
	if len(got) != said {
		t.Errorf("%d messages have an outcome, want %d", len(got), said)
	}
}

// A joining member gets an error when the Hub is closed.
func TestCloseTellsWhoIsJoining(t *testing.T) {
	m := miniredis.RunT(t)
	client := redis.NewClient(&redis.Options{Addr: m.Addr()})
	defer client.Close()
	n := startNode(t, client, settled())
	m.Close()
	c := n.dial()
	c.say("history room 0")
	testkit.Eventually(t, "it is joining", func() bool { return redisgroup.Joining(n.hub) == 1 })
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	_ = n.hub.Close(ctx)
	c.until("err=" + redisgroup.ErrClosed.Error())
}

// Who does not get a message is forgotten if the message is refused.
func TestRefusedMessagesLeaveNothing(t *testing.T) {
	m := miniredis.RunT(t)
	client := redis.NewClient(&redis.Options{Addr: m.Addr()})
	defer client.Close()
	cfg := settled()
	cfg.OneOrder, cfg.MaxQueue = true, 1
	n := startNode(t, client, cfg)
	c := n.dial()
	c.say("join red")
	c.wants("joined true")
	m.Close()
	const said = 100
	for range said {
		c.say("others red x")
	}
	c.say("leave blue")
	refused := 0
	for _, line := range c.until("left false") {
		if strings.Contains(line, redisgroup.ErrQueueFull.Error()) {
			refused++
		}
	}
	if refused == 0 {
		t.Fatal("nothing was refused")
	}
	if n := redisgroup.Excepts(n.hub); n > said-refused {
		t.Errorf("%d are kept, of %d messages that were not refused", n, said-refused)
	}
	redisgroup.Die(n.hub) // Close would wait for Redis
}
