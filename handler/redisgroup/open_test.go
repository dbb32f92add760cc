//go:build unix

package redisgroup_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/rs/zerolog"

	"github.com/loopwheel/loopwheel/handler/redisgroup"
	"github.com/loopwheel/loopwheel/internal/redistest"
)

func TestOpenRefuses(t *testing.T) {
	m := miniredis.RunT(t)
	there := redis.NewClient(&redis.Options{Addr: m.Addr()})
	away := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	for name, tt := range map[string]struct {
		client redis.UniversalClient
		cfg    redisgroup.Config
		want   string
	}{
		"away":     {away, redisgroup.Config{}, "cannot be reached"},
		"braces":   {there, redisgroup.Config{Prefix: "{x}"}, "braces"},
		"lease":    {there, redisgroup.Config{Lease: time.Millisecond}, "Config.Lease"},
		"negative": {there, redisgroup.Config{MaxQueue: -1}, "Config.MaxQueue"},
		"ring":     {redis.NewRing(&redis.RingOptions{}), redisgroup.Config{}, "*redis.Ring"},
	} {
		if _, err := redisgroup.Open(t.Context(), tt.client, tt.cfg); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want something with %q", name, err, tt.want)
		}
	}
}

func TestSizes(t *testing.T) {
	n := startNode(t, startMini(t)(), redisgroup.Config{MaxMessage: 10})
	var size *redisgroup.SizeError
	for _, name := range []string{"", strings.Repeat("x", redisgroup.MaxName+1)} {
		if _, err := n.hub.Group(name); !errors.As(err, &size) {
			t.Errorf("Group: %v", err)
		}
		if _, err := n.hub.Ordered(name); !errors.As(err, &size) {
			t.Errorf("Ordered: %v", err)
		}
	}
	g, _ := n.hub.Group("any\x00bytes{}\r\n\xff")
	if err := g.Broadcast(make([]byte, 11)); !errors.As(err, &size) || size.Len != 11 {
		t.Errorf("Broadcast: %v", err)
	}
	n.stop()
	if err := g.Broadcast(nil); !errors.Is(err, redisgroup.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

// A Redis that may delete rooms when its memory is full is warned of, once; not one that may not,
// or that does not tell.
func TestWarnsOfEviction(t *testing.T) {
	r := redistest.Start(t)
	for _, tt := range []struct {
		policy, limit string
		acl           []string
		want          int
	}{
		{"noeviction", "1gb", nil, 0},
		{"allkeys-lru", "0", nil, 0},
		{"allkeys-lru", "1gb", nil, 1},
		{"volatile-ttl", "1gb", nil, 1},
		{"allkeys-lru", "1gb", []string{"-info"}, 0},
	} {
		r.CLI("config", "set", "maxmemory-policy", tt.policy, "maxmemory", tt.limit)
		r.CLI(append([]string{"acl", "setuser", "someone", "reset", "on", "nopass", "~*", "&*", "+@all"}, tt.acl...)...)
		var out bytes.Buffer
		client := redis.NewClient(&redis.Options{Addr: r.Addr, Username: "someone", Password: "any"})
		hub, err := redisgroup.Open(t.Context(), client, redisgroup.Config{Logger: zerolog.New(&out)})
		if err != nil {
			t.Fatal(err)
		}
		if err := hub.Close(t.Context()); err != nil {
			t.Error(err)
		}
		_ = client.Close()
		if n := strings.Count(out.String(), `"policy":"`+tt.policy+`"`); n != tt.want || strings.Count(out.String(), "\n") != n {
			t.Errorf("%+v: %s", tt, out.String())
		}
	}
}

// A Hub may be opened before Redis is there; what was published meanwhile arrives.
func TestLazy(t *testing.T) {
	r := redistest.Start(t)
	r.Kill()
	cfg := settled()
	cfg.Lazy = true
	one := startNode(t, impatient(r), cfg)
	c := one.dial()
	c.say("ojoin room")
	c.wants("joined true")
	sp := newSpeaker(t, one, "room", "s")
	sp.say(3, 10)
	r.Start()
	c.until("s:3")
	two := startNode(t, impatient(r), settled())
	w := two.watch("room")
	sp.say(1, 10)
	w.heard(t, "s:4")
	c.until("s:4")
}

// Open refuses a client that does not fit its server, and says so.
func TestOpenUnfit(t *testing.T) {
	redistest.Unfit(t, func(t *testing.T, client *redis.Client) {
		if _, err := redisgroup.Open(t.Context(), client, redisgroup.Config{}); err == nil || !strings.Contains(err.Error(), "client") {
			t.Errorf("Open: got %v, want an error that says which client it takes", err)
		}
	})
}
