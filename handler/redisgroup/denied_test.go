//go:build unix

package redisgroup_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/auth"

	"github.com/loopwheel/loopwheel/handler/redisgroup"
)

// as returns a client that is a user with a password like its name.
func (s *redisServer) as(user string) *redis.Client {
	c := redis.NewClient(&redis.Options{Addr: s.addr(), Username: user, Password: user})
	s.t.Cleanup(func() { c.Close() })
	return c
}

// subscribeErrors returns the errors about subscriptions that n was told, by room.
func (n *node) subscribeErrors() map[string]int {
	n.mu.Lock()
	defer n.mu.Unlock()
	rooms := make(map[string]int)
	for _, err := range n.errs {
		var e *redisgroup.SubscribeError
		if errors.As(err, &e) && strings.HasPrefix(e.Err.Error(), "NOPERM") {
			rooms[e.Room]++
		}
	}
	return rooms
}

// A room that the user may not hear fails alone: others go on, on the same connection; and it is
// heard once that is allowed.
func TestSubscribeDenied(t *testing.T) {
	r := newRedis(t)
	r.cli("acl", "setuser", "some", "on", ">some", "~*", "+@all", "resetchannels", "&*:ok*", "&*:u*")
	one, two := startNode(t, r.as("some"), settled()), startNode(t, r.client(), settled())
	a, b := one.dial(), two.dial()
	var names []string
	for i := range 20 {
		names = append(names, fmt.Sprintf("ok%d", i))
	}
	a.say("join bad\n%s\nojoin badly", "join "+strings.Join(names, "\njoin "))
	eventually(t, "both are denied", func() bool { return len(one.subscribeErrors()) == 2 })
	for _, room := range names {
		b.say("join %s", room)
		b.wants("joined true")
	}
	c := one.dial()
	c.say("history badly 0")
	if got := c.hear(); !strings.Contains(got, "NOPERM") || !strings.Contains(got, "badly") {
		t.Errorf("joining a room that is denied: %q", got)
	}
	for i := range 3 { // also on another connection
		for _, room := range names {
			d := one.dial()
			d.say("join %s", room)
			d.wants("joined true")
			meet(t, room, d, b)
			d.Close()
		}
		if i == 0 {
			r.cli("client", "kill", "type", "pubsub")
		}
	}
	if got := one.hub.Stats().Connects; got > 3 {
		t.Errorf("%d connections", got)
	}
	for room, n := range one.subscribeErrors() {
		if n > 1 {
			t.Errorf("%s was reported %d times", room, n)
		}
	}
	r.cli("acl", "setuser", "some", "allchannels")
	b.say("ojoin badly")
	b.wants("joined true")
	d := one.dial()
	for deadline := time.Now().Add(patience); ; {
		d.say("history badly 0")
		if got := d.hear(); strings.HasSuffix(got, "err=<nil>") {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("it is denied for ever")
		}
	}
	b.say("osay badly hello")
	b.until("hello")
	d.until("hello")
}

// refusedSubscribes returns how many SSUBSCRIBEs Redis has refused.
func (s *redisServer) refusedSubscribes() (n int) {
	for _, line := range strings.Split(s.cli("info", "commandstats"), "\n") {
		if stats, ok := strings.CutPrefix(line, "cmdstat_ssubscribe:"); ok {
			_, stats, _ = strings.Cut(stats, "rejected_calls=")
			_, _ = fmt.Sscan(stats, &n)
		}
	}
	return n
}

// A room that is denied is tried again by one timer, however often the connection was lost.
func TestDeniedRetriesDoNotMultiply(t *testing.T) {
	r := newRedis(t)
	r.cli("acl", "setuser", "some", "on", ">some", "~*", "+@all", "resetchannels")
	n := startNode(t, r.as("some"), settled())
	n.dial().say("join bad")
	for i := range 8 {
		eventually(t, "it is refused on this connection", func() bool { return r.refusedSubscribes() > i })
		connects := n.hub.Stats().Connects
		// What has subscribed to nothing is not of the type pubsub.
		r.cli("client", "kill", "user", "some")
		eventually(t, "it has another connection", func() bool { return n.hub.Stats().Connects > connects })
	}
	eventually(t, "there is one timer", func() bool { return redisgroup.Timers(n.hub) == 1 })
}

// Each room that is denied is told once, also if they are too many to be told at once.
func TestDeniedAreAllTold(t *testing.T) {
	r := newRedis(t)
	r.cli("acl", "setuser", "some", "on", ">some", "~*", "+@all", "resetchannels")
	n := startNode(t, r.as("some"), settled())
	c := n.dial()
	const rooms = 12
	for i := range rooms {
		c.say("join bad%d", i)
	}
	eventually(t, "all are told", func() bool { return len(n.subscribeErrors()) == rooms })
	before := r.refusedSubscribes()
	eventually(t, "all are denied again", func() bool { return r.refusedSubscribes() >= before+rooms })
	for room, times := range n.subscribeErrors() {
		if times > 1 {
			t.Errorf("%s was told %d times", room, times)
		}
	}
}

// A vault gives credentials, and tells those who listen when they change.
type vault struct {
	mu        sync.Mutex
	now       auth.Credentials
	listeners map[auth.CredentialsListener]bool
	most      int
}

func (v *vault) Subscribe(l auth.CredentialsListener) (auth.Credentials, auth.UnsubscribeFunc, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.listeners[l] = true
	v.most = max(v.most, len(v.listeners))
	return v.now, func() error {
		v.mu.Lock()
		defer v.mu.Unlock()
		delete(v.listeners, l)
		return nil
	}, nil
}

func (v *vault) change(user string) {
	v.mu.Lock()
	v.now = auth.NewBasicCredentials(user, user)
	var all []auth.CredentialsListener
	for l := range v.listeners {
		all = append(all, l)
	}
	now := v.now
	v.mu.Unlock()
	for _, l := range all {
		l.OnNext(now)
	}
}

// Credentials that change are taken over on the connection with the subscriptions, while it
// publishes: nothing is lost, and it stands.
func TestCredentialsChange(t *testing.T) {
	r := newRedis(t)
	for _, user := range []string{"ann", "bob"} {
		r.cli("acl", "setuser", user, "on", ">"+user, "~*", "&*", "+@all")
	}
	v := &vault{now: auth.NewBasicCredentials("ann", "ann"), listeners: make(map[auth.CredentialsListener]bool)}
	user := redis.NewClient(&redis.Options{Addr: r.addr(), StreamingCredentialsProvider: v})
	defer user.Close()
	one, two := startNode(t, user, settled()), startNode(t, r.client(), settled())
	a, b := one.dial(), two.dial()
	for _, c := range []*client{a, b} {
		c.say("join red")
		c.wants("joined true")
	}
	meet(t, "red", a, b)
	before := one.hub.Stats().Connects // 1, unless the machine stood still
	const said = 3000
	var over atomic.Bool
	var wg sync.WaitGroup
	wg.Go(func() {
		g, _ := one.hub.Group("red")
		for i := range said {
			if err := g.Broadcast(fmt.Append(nil, i)); err != nil {
				t.Error(err)
			}
			time.Sleep(100 * time.Microsecond)
		}
		over.Store(true)
	})
	for i := 0; !over.Load(); i++ {
		v.change([]string{"ann", "bob"}[i%2])
		time.Sleep(2 * time.Millisecond)
	}
	wg.Wait()
	for i := range said {
		a.wants(fmt.Sprint(i))
		b.wants(fmt.Sprint(i))
	}
	v.change("bob")
	eventually(t, "it is bob's", func() bool {
		return strings.Contains(r.cli("client", "list", "type", "pubsub"), "user=bob")
	})
	if got := one.hub.Stats(); got.Connects != before || got.Lost != 0 {
		t.Errorf("%+v", got)
	}
	// What another connection is made with is the last one.
	r.cli("client", "kill", "type", "pubsub")
	eventually(t, "there is another", func() bool { return one.hub.Stats().Connects > before })
	r.cli("acl", "setuser", "bob", "off")
	v.change("nobody") // which Redis refuses: the connection is made again, until there is somebody
	v.change("ann")
	meet(t, "red", a, b)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := one.hub.Close(ctx); err != nil {
		t.Error(err)
	}
	user.Close()
	eventually(t, "nobody listens", func() bool {
		v.mu.Lock()
		defer v.mu.Unlock()
		return len(v.listeners) == 0
	})
}
