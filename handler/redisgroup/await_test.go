package redisgroup

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/loopwheel/loopwheel/codec/resp"
	"github.com/loopwheel/loopwheel/internal/seed"
)

// A dialogue is a wire whose other end a test is.
type dialogue struct {
	t     *testing.T
	wire  *wire
	redis net.Conn
	heard []string
	ended chan error
}

func newDialogue(t *testing.T) *dialogue {
	here, there := net.Pipe()
	d := &dialogue{t: t, redis: there, ended: make(chan error, 1)}
	d.wire = &wire{Conn: here, patience: time.Minute, shared: true}
	return d
}

func (d *dialogue) begin() *dialogue {
	go func() {
		err := d.wire.read(func(said []resp.Value) {
			var words []string
			for _, v := range said[:min(2, len(said))] {
				words = append(words, string(v.Str))
			}
			d.heard = append(d.heard, strings.Join(words, " "))
		})
		d.wire.fail(err)
		d.ended <- err
	}()
	return d
}

// ask has something said, wants it to begin with what, and answers.
func (d *dialogue) ask(what, answer string, say func() error) {
	d.t.Helper()
	said := make(chan error, 1)
	go func() { said <- say() }()
	buf := make([]byte, 4096)
	n, err := d.redis.Read(buf)
	if want := resp.AppendCommand(nil, strings.Fields(what)...); err != nil || string(buf[:n]) != string(want) {
		d.t.Fatalf("said %q, %v, want %q", buf[:n], err, want)
	}
	if err := <-said; err != nil {
		d.t.Fatal(err)
	}
	d.answer(answer)
}

func (d *dialogue) answer(answer string) {
	d.t.Helper()
	if _, err := d.redis.Write([]byte(answer)); err != nil {
		d.t.Fatal(err)
	}
}

// end closes the other end, and returns why the wire has ended.
func (d *dialogue) end() error {
	_ = d.redis.Close()
	return <-d.ended
}

// push is what a subscription brings.
func push(words ...string) string {
	text := fmt.Sprintf(">%d\r\n", len(words)+1)
	for _, w := range words {
		text += fmt.Sprintf("$%d\r\n%s\r\n", len(w), w)
	}
	return text + ":1\r\n"
}

const noPerm = "-NOPERM No permissions to access a channel\r\n"

// One answer says that a command about several channels is denied. What follows is answered as ever,
// whatever a cluster says unasked between.
func TestWireDenied(t *testing.T) { synctest.Test(t, wireDenied) }

func wireDenied(t *testing.T) {
	d := newDialogue(t)
	var denied []string
	d.wire.denied = func(a *await, err error) {
		denied = append(denied, fmt.Sprint(a.channels, a.kind == unsubscribing, judge(err) == refused))
	}
	d.begin()
	about := func(command string, channels ...string) func() error {
		return func() error { return d.wire.about(command, channels) }
	}
	d.ask("SUBSCRIBE a b c", noPerm, about("SUBSCRIBE", "a", "b", "c"))
	d.ask("SSUBSCRIBE a b", push("ssubscribe", "a")+push("sunsubscribe", "x")+push("ssubscribe", "b"), about("SSUBSCRIBE", "a", "b"))
	d.ask("SUNSUBSCRIBE a b", push("sunsubscribe", "x")+push("sunsubscribe", "a")+push("sunsubscribe", "b"), about("SUNSUBSCRIBE", "a", "b"))
	d.ask("PING", "-NOPERM of ping\r\n", d.wire.ping)
	d.ask("AUTH me secret", "+OK\r\n", func() error { return d.wire.auth("me", "secret") })
	d.ask("AUTH secret", "+OK\r\n", func() error { return d.wire.auth("", "secret") })
	d.ask("PING", "+PONG\r\n", d.wire.ping)
	d.ask("UNSUBSCRIBE a b", noPerm, about("UNSUBSCRIBE", "a", "b"))
	sent := make(chan *await, 1)
	d.ask("PUBLISH a b", ":1\r\n", func() error {
		sent <- d.wire.publish(resp.AppendCommand(nil, "PUBLISH", "a", "b"), 1)
		return nil
	})
	if errs := d.wire.wait(<-sent, 0); len(errs) != 1 || errs[0] != nil {
		t.Errorf("PUBLISH was answered %v", errs)
	}
	d.end()
	if want := []string{"[a b c] false true", "[a b] true true"}; !slices.Equal(denied, want) {
		t.Errorf("denied %q, want %q", denied, want)
	}
	if len(d.heard) != 6 {
		t.Errorf("heard %q", d.heard)
	}
}

// What makes it unknown which answer belongs to what ends the wire, and what it cannot do without.
func TestWireEnds(t *testing.T) {
	about := func(d *dialogue) error { return d.wire.about("SUBSCRIBE", []string{"a"}) }
	auth := func(d *dialogue) error { return d.wire.auth("me", "secret") }
	ping := func(d *dialogue) error { return d.wire.ping() }
	for _, c := range []struct {
		what, answer string
		say          func(d *dialogue) error
	}{
		{"SUBSCRIBE a", "-MOVED 1 127.0.0.1:1\r\n", about},
		{"SUBSCRIBE a", ":1\r\n", about},
		{"SUBSCRIBE a", "+OK\r\n", about},
		{"AUTH me secret", "-WRONGPASS\r\n", auth},
		{"AUTH me secret", "-NOPERM\r\n", auth},
		{"AUTH me secret", push("subscribe", "a"), auth},
		{"PING", "+PONG\r\n+PONG\r\n", ping},
		{"PING", "+PONG\r\n-ERR\r\n", ping},
		{"PING", "+PONG\r\n:1\r\n", ping},
		{"PING", "?\r\n", ping},
	} {
		synctest.Test(t, func(t *testing.T) {
			d := newDialogue(t)
			d.wire.denied = func(*await, error) { t.Errorf("%q: it was denied", c.answer) }
			d.begin()
			d.ask(c.what, c.answer, func() error { return c.say(d) })
			synctest.Wait()
			select {
			case <-d.ended:
			default:
				t.Errorf("%q answered with %q: it goes on", c.what, c.answer)
			}
			_ = d.redis.Close()
		})
	}
}

// A queue gives back what it was given, in its order, and the memory of a burst.
func TestAwaits(t *testing.T) {
	rng := rand.New(rand.NewPCG(seed.Pick(t, 1), 1))
	var q awaits
	var want []*await
	for range 2000 {
		for range rng.IntN(20) {
			a := &await{}
			q.push(a)
			want = append(want, a)
		}
		for range rng.IntN(20) {
			got, head := q.pop(), (*await)(nil)
			if len(want) > 0 {
				head, want = want[0], want[1:]
			}
			if got != head {
				t.Fatal("another came")
			}
		}
		if len(q.all)-q.first != len(want) || cap(q.all) > 4*len(want)+4*keptAwaits {
			t.Fatalf("%d wait, with room for %d", len(want), cap(q.all))
		}
	}
	for range 1 << 16 {
		q.push(&await{})
	}
	for q.pop() != nil {
	}
	if cap(q.all) > keptAwaits {
		t.Errorf("it has room for %d when it is empty", cap(q.all))
	}
	for range 1 << 16 { // a burst from which it never recovers wholly
		q.push(&await{})
	}
	for range 1<<16 - 1 {
		q.pop()
	}
	for range 1 << 18 {
		q.push(&await{})
		q.pop()
	}
	if cap(q.all) > keptAwaits {
		t.Errorf("it has room for %d with one in it", cap(q.all))
	}
}

// Commands about channels that must be alone are written together.
func TestWireWritesTogether(t *testing.T) {
	d := newDialogue(t).begin()
	said := make(chan error, 1)
	go func() { said <- d.wire.about("SUBSCRIBE", []string{"a"}, []string{"b"}) }()
	buf := make([]byte, 4096)
	n, _ := d.redis.Read(buf)
	want := append(resp.AppendCommand(nil, "SUBSCRIBE", "a"), resp.AppendCommand(nil, "SUBSCRIBE", "b")...)
	if err := <-said; err != nil || string(buf[:n]) != string(want) {
		t.Fatalf("said %q, %v", buf[:n], err)
	}
	d.answer(push("subscribe", "a") + push("subscribe", "b"))
	if err := d.end(); errors.Is(err, errAnswer) || len(d.heard) != 2 {
		t.Errorf("heard %q, %v", d.heard, err)
	}
}
