package main

import (
	"bytes"
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/codec/mqtt"
	"github.com/loopwheel/loopwheel/internal/testkit"
)

// hoards are what clients make a broker keep. Each call is the n-th client's. It returns the reason
// code of the first thing that the broker refused.
var hoards = map[string]func(t *testing.T, addr string, n int) mqtt.ReasonCode{
	"retained messages of 200 levels": func(t *testing.T, addr string, n int) mqtt.ReasonCode {
		p, code := hoarder(t, addr, n, nil)
		defer p.close()
		for i := 0; i < 20 && code == mqtt.Success; i++ {
			code = p.publish(t, fmt.Sprint(n, ".", i, strings.Repeat("/", 200)), nil, []byte("x"), true)
		}
		return code
	},
	"large retained messages": func(t *testing.T, addr string, n int) mqtt.ReasonCode {
		p, code := hoarder(t, addr, n, nil)
		defer p.close()
		if code != mqtt.Success {
			return code
		}
		return p.publish(t, fmt.Sprint("large/", n), nil, make([]byte, 200_000), true)
	},
	"retained messages that grow": func(t *testing.T, addr string, n int) mqtt.ReasonCode {
		p, code := hoarder(t, addr, n, nil)
		defer p.close()
		props := mqtt.Properties(nil)
		for range 6 {
			props = props.AppendUser("k", strings.Repeat("x", 30_000))
		}
		for _, props := range []mqtt.Properties{nil, props} {
			if code == mqtt.Success {
				code = p.publish(t, fmt.Sprint("grows/", n), props, []byte("x"), true)
			}
		}
		return code
	},
	"sessions": func(t *testing.T, addr string, n int) (code mqtt.ReasonCode) {
		for i := 0; i < 50 && code == mqtt.Success; i++ {
			var p *peer
			p, code = hoarder(t, addr, n*50+i, nil)
			p.close()
		}
		return code
	},
	"sessions with long identifiers": func(t *testing.T, addr string, n int) mqtt.ReasonCode {
		p, code := hoarder(t, addr, n, nil, strings.Repeat("x", 50_000))
		p.close()
		return code
	},
	"wills": func(t *testing.T, addr string, n int) mqtt.ReasonCode {
		p, code := hoarder(t, addr, n, &mqtt.Will{Topic: []byte("will"), Payload: make([]byte, 50_000),
			Properties: mqtt.Properties(nil).AppendNumber(mqtt.WillDelay, 1000)})
		p.close()
		return code
	},
	"deep subscriptions": func(t *testing.T, addr string, n int) mqtt.ReasonCode {
		return subscribeMany(t, addr, n, 38, func(i int) string { return fmt.Sprint(n, ".", i, strings.Repeat("/", 199)) })
	},
	"short subscriptions": func(t *testing.T, addr string, n int) mqtt.ReasonCode {
		return subscribeMany(t, addr, n, 900, func(i int) string { return fmt.Sprint("s/", i) })
	},
	"subscriptions that are gone": func(t *testing.T, addr string, n int) mqtt.ReasonCode {
		p, code := hoarder(t, addr, n, nil)
		defer p.close()
		var all []string
		var texts [][]byte
		for i := range 900 {
			all = append(all, fmt.Sprint("s/", i))
			texts = append(texts, []byte(all[i]))
		}
		if code == mqtt.Success {
			code = p.subscribe(t, 0, all...)
		}
		if code == mqtt.Success {
			packet, err := mqtt.AppendUnsubscribe(nil, mqtt.V5, 1, nil, texts...)
			p.ask(t, packet, err)
		}
		return code
	},
	"shared subscriptions": func(t *testing.T, addr string, n int) mqtt.ReasonCode {
		return subscribeMany(t, addr, n, 500, func(i int) string { return fmt.Sprint("$share/", n, "/s/", i) })
	},
	"a long group whose first member is gone": func(t *testing.T, addr string, n int) mqtt.ReasonCode {
		long := fmt.Sprint("$share/", n, "/", strings.Repeat("x", 60_000))
		first, code := hoarder(t, addr, -1, nil)
		defer first.close()
		if code == mqtt.Success {
			code = first.subscribe(t, 0, long)
		}
		p, refused := hoarder(t, addr, n, nil)
		defer p.close()
		if code|refused == mqtt.Success {
			code = p.subscribe(t, 0, long)
			packet, err := mqtt.AppendUnsubscribe(nil, mqtt.V5, 1, nil, []byte(long))
			first.ask(t, packet, err)
		}
		return code | refused
	},
	"levels of long filters that are gone": func(t *testing.T, addr string, n int) mqtt.ReasonCode {
		p, code := hoarder(t, addr, n, nil)
		defer p.close()
		if code != mqtt.Success {
			return code
		}
		long := fmt.Sprint(n, "/", strings.Repeat("x", 60_000))
		if code = p.subscribe(t, 0, long, fmt.Sprint(n, "/short")); code == mqtt.Success {
			packet, err := mqtt.AppendUnsubscribe(nil, mqtt.V5, 1, nil, []byte(long))
			p.ask(t, packet, err)
		}
		return code
	},
	"messages that wait": func(t *testing.T, addr string, n int) mqtt.ReasonCode {
		p, code := hoarder(t, addr, n, nil)
		if code == mqtt.Success {
			code = p.subscribe(t, 1, fmt.Sprint("waits/", n))
		}
		p.close()
		from, refused := hoarder(t, addr, -1, nil)
		defer from.close()
		for i := 0; i < 900 && code|refused == mqtt.Success; i++ {
			code = from.publish(t, fmt.Sprint("waits/", n), nil, make([]byte, 1000), false)
		}
		return code | refused
	},
	"messages of ended sessions": func(t *testing.T, addr string, n int) mqtt.ReasonCode {
		p, code := hoarder(t, addr, n, nil)
		if code != mqtt.Success {
			return code
		}
		p.subscribe(t, 1, "mine")
		code = p.publish(t, fmt.Sprint("ended/", n), nil, []byte("x"), true)
		from, _ := hoarder(t, addr, -1, nil)
		from.publish(t, "mine", nil, make([]byte, 100_000), false)
		from.close()
		d := mqtt.Disconnect{Properties: mqtt.Properties(nil).AppendNumber(mqtt.SessionExpiry, 0)}
		packet, err := d.Append(nil, mqtt.V5)
		p.send(t, packet, err)
		p.close()
		return code
	},
}

// hoarder connects a client whose session lasts. With a refusal the peer is nil.
func hoarder(t *testing.T, addr string, n int, w *mqtt.Will, suffix ...string) (*peer, mqtt.ReasonCode) {
	t.Helper()
	c := mqtt.Connect{Version: mqtt.V5, ClientID: []byte(fmt.Sprint("hoarder", n, strings.Join(suffix, ""))), Will: w,
		Properties: mqtt.Properties(nil).AppendNumber(mqtt.SessionExpiry, 3600)}
	p, _, err := join(addr, c)
	switch {
	case err == nil:
		return p, mqtt.Success
	case strings.Contains(err.Error(), mqtt.QuotaExceeded.String()):
		return nil, mqtt.QuotaExceeded
	}
	t.Fatal(err)
	return nil, 0
}

// close closes the connection and waits for the broker to do so.
func (p *peer) close() {
	if p == nil {
		return
	}
	_ = p.nc.(interface{ CloseWrite() error }).CloseWrite()
	_ = p.nc.SetReadDeadline(time.Now().Add(20 * time.Second))
	_, _ = io.Copy(io.Discard, p.r)
	_ = p.nc.Close()
}

// publish publishes with QoS 1. It takes "no matching subscribers" for success.
func (p *peer) publish(t *testing.T, topic string, props mqtt.Properties, payload []byte, retain bool) mqtt.ReasonCode {
	t.Helper()
	packet, err := (&mqtt.Publish{QoS: 1, ID: 1, Retain: retain, Topic: []byte(topic), Payload: payload, Properties: props}).Append(nil, mqtt.V5)
	frame := p.ask(t, packet, err)
	for mqtt.TypeOf(frame) == mqtt.PUBLISH {
		if frame, err = p.next(); err != nil {
			t.Fatal(err)
		}
	}
	if mqtt.TypeOf(frame) == mqtt.DISCONNECT {
		return mqtt.QuotaExceeded
	}
	ack, err := mqtt.ParseAck(frame, mqtt.V5)
	if err != nil {
		t.Fatal(err)
	}
	if ack.Code == mqtt.NoMatchingSubscribers {
		return mqtt.Success
	}
	return ack.Code
}

func (p *peer) subscribe(t *testing.T, qos byte, filters ...string) mqtt.ReasonCode {
	t.Helper()
	var all []mqtt.Subscription
	for _, f := range filters {
		all = append(all, mqtt.Subscription{Filter: []byte(f), QoS: qos})
	}
	packet, err := mqtt.AppendSubscribe(nil, mqtt.V5, 1, nil, all...)
	ack, err := mqtt.ParseSubAck(p.ask(t, packet, err), mqtt.V5)
	if err != nil {
		t.Fatal(err)
	}
	for _, code := range ack.Codes {
		if code >= 0x80 {
			return mqtt.ReasonCode(code)
		}
	}
	return mqtt.Success
}

func subscribeMany(t *testing.T, addr string, n, many int, filter func(i int) string) mqtt.ReasonCode {
	p, code := hoarder(t, addr, n, nil)
	defer p.close()
	var all []string
	for i := range many {
		all = append(all, filter(i))
	}
	if code != mqtt.Success {
		return code
	}
	return p.subscribe(t, 0, all...)
}

// heap returns the bytes that are in use.
func heap() int {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC() // of what pools hold, too
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

// TestBudget: whatever clients have the broker keep, it takes at most MaxMemory, and then is refused.
func TestBudget(t *testing.T) {
	const limit = 8 << 20
	for name, hoard := range hoards {
		for _, loops := range []int{1, 3} {
			t.Run(fmt.Sprint(name, "/", loops), func(t *testing.T) {
				addr, b := start(t, loops, Config{MaxMemory: limit})
				before := heap()
				for n := range 300 {
					code := hoard(t, addr, n)
					if code == mqtt.QuotaExceeded {
						break
					}
					if code != mqtt.Success {
						t.Fatalf("client %d: %v, want %v", n, code, mqtt.QuotaExceeded)
					}
				}
				testkit.EventuallyIn(t, time.Second, "at most 1.25 times MaxMemory on the heap", func() bool { return heap()-before < limit*5/4 })
				t.Logf("%s: %d bytes on the heap, %d counted", t.Name(), heap()-before, b.kept.Load())
				b.clear(t)
			})
		}
	}
}

// clear ends all sessions and removes all retained messages. Nothing is counted then.
func (b *broker) clear(t *testing.T) {
	t.Helper()
	b.each(func(sh *shard) {
		for _, s := range sh.sessions {
			if s.client != nil {
				t.Errorf("the client of session %q has not gone", s.id)
			}
			sh.end(s)
		}
		sh.retained.sweep(func(*message) bool { return true })
	})
	var counted int64
	testkit.EventuallyIn(t, 10*time.Second, "nothing kept, and nothing counted", func() bool {
		owners := 0
		counted = 0
		b.each(func(sh *shard) {
			counted += sh.budget.own
			owners += len(sh.owners)
		})
		counted += b.kept.Load()
		return counted == 0 && owners == 0
	})
}

// TestBudgetFull: what is there stays of use when nothing more may be kept.
func TestBudgetFull(t *testing.T) {
	addr, b := start(t, 2, Config{MaxMemory: 600_000})
	check := func(what string, got, want mqtt.ReasonCode) {
		t.Helper()
		if got != want {
			t.Errorf("%s: got %v, want %v", what, got, want)
		}
	}
	const q = 7
	p := mustConnect(t, addr, "p")
	to, code := hoarder(t, addr, q, nil)
	check("the first client", code, mqtt.Success)
	check("its subscription", to.subscribe(t, 1, "live"), mqtt.Success)
	n := 0
	for ; code == mqtt.Success && n < 100; n++ {
		code = p.publish(t, fmt.Sprint("kept/", n), nil, make([]byte, 50_000), true)
	}
	check("retained messages", code, mqtt.QuotaExceeded)
	testkit.Eventually(t, "full on each loop", func() bool {
		full := true
		b.each(func(sh *shard) { full = full && sh.budget.full() })
		return full
	})
	check("a larger one", p.publish(t, "kept/0", nil, make([]byte, 50_001), true), mqtt.QuotaExceeded)
	check("properties", p.publish(t, "kept/0", mqtt.Properties(nil).AppendUser("a", "b"), make([]byte, 50_000), true), mqtt.QuotaExceeded)
	check("one as large", p.publish(t, "kept/0", nil, make([]byte, 50_000), true), mqtt.Success)
	check("a new subscription", to.subscribe(t, 1, "more"), mqtt.QuotaExceeded)
	check("an old one", to.subscribe(t, 1, "live"), mqtt.Success)
	_, code = hoarder(t, addr, 1, nil)
	check("a new session", code, mqtt.QuotaExceeded)
	if _, _, err := join(addr, mqtt.Connect{Version: mqtt.V311, CleanStart: true, ClientID: []byte("old")}); err == nil || !strings.Contains(err.Error(), mqtt.ServerUnavailable.String()) {
		t.Errorf("a new session of version 3.1.1: got %v, want %v", err, mqtt.ServerUnavailable)
	}
	to.close()
	to, present, err := join(addr, mqtt.Connect{Version: mqtt.V5, ClientID: fmt.Append(nil, "hoarder", q), Will: &mqtt.Will{Topic: []byte("last"), Retain: false, Payload: []byte("x")}})
	if err != nil || !present {
		t.Fatalf("the client comes back: got present %v, %v; want its session", present, err)
	}
	for range 20 {
		check("a message", p.publish(t, "live", nil, make([]byte, 1000), false), mqtt.Success)
		frame, err := to.next()
		if err != nil {
			t.Fatal(err)
		}
		m, err := mqtt.ParsePublish(frame, mqtt.V5)
		if err != nil || len(m.Payload) != 1000 {
			t.Fatalf("got a message of %d bytes, %v; want 1,000", len(m.Payload), err)
		}
		a := mqtt.Ack{Type: mqtt.PUBACK, ID: m.ID}
		packet, err := a.Append(nil, mqtt.V5)
		to.send(t, packet, err)
	}
	for i := range n {
		check("a deletion", p.publish(t, fmt.Sprint("kept/", i), nil, nil, true), mqtt.Success)
	}
	testkit.Eventually(t, "room for a new session", func() bool {
		late, code := hoarder(t, addr, 1, nil)
		late.close()
		return code == mqtt.Success
	})
	p.close()
	to.close()
	b.clear(t)
}

// TestBudgetAlias: an alias that is set again takes nothing more, also when nothing more may be kept.
func TestBudgetAlias(t *testing.T) {
	addr, b := start(t, 1, Config{MaxMemory: 1 << 20})
	other := mustConnect(t, addr, "other")
	p := mustConnect(t, addr, "again")
	again := func(n int, topic string) {
		t.Helper()
		props := mqtt.Properties(nil).AppendNumber(mqtt.TopicAlias, 1)
		one, err := (&mqtt.Publish{Topic: []byte(topic), Properties: props}).Append(nil, mqtt.V5)
		if err != nil {
			t.Fatal(err)
		}
		frame := p.ask(t, mqtt.AppendPing(bytes.Repeat(one, n), mqtt.PINGREQ), nil)
		if got := mqtt.TypeOf(frame); got != mqtt.PINGRESP {
			t.Fatalf("after %d messages with a topic and its alias: got %v, want %v", n, got, mqtt.PINGRESP)
		}
	}
	used := func() (n int64) {
		b.each(func(sh *shard) { n = sh.budget.used() })
		return n
	}
	before := used()
	again(1, "a/b")
	if got, want := used()-before, int64(aliasCost+3); got != want {
		t.Errorf("an alias takes %d bytes, want %d", got, want)
	}
	again(20_000, "a")
	if got, want := used()-before, int64(aliasCost+1); got != want {
		t.Errorf("an alias that was set 20,001 times takes %d bytes, want %d", got, want)
	}
	if code := other.subscribe(t, 0, "x"); code != mqtt.Success {
		t.Errorf("another client's subscription: got %v, want %v", code, mqtt.Success)
	}
	b.each(func(sh *shard) { sh.budget.add(1 << 20) })
	again(2, "a")
	b.each(func(sh *shard) { sh.budget.add(-1 << 20) })
	p.close()
	other.close()
	b.clear(t)
}

// TestBudgetAway: queues of clients that are away leave room for messages to connected clients.
func TestBudgetAway(t *testing.T) {
	addr, b := start(t, 1, Config{MaxMemory: 1 << 20})
	to, from := mustConnect(t, addr, "to"), mustConnect(t, addr, "from")
	if code := to.subscribe(t, 1, "live"); code != mqtt.Success {
		t.Fatalf("a subscription: got %v, want %v", code, mqtt.Success)
	}
	for n := range 3 {
		away, _ := hoarder(t, addr, n, nil)
		if code := away.subscribe(t, 1, "waits"); code != mqtt.Success {
			t.Fatalf("subscription %d: got %v, want %v", n, code, mqtt.Success)
		}
		away.close()
	}
	publish := func(topic string, size int) {
		t.Helper()
		if code := from.publish(t, topic, nil, make([]byte, size), false); code != mqtt.Success {
			t.Fatalf("a message for %q: got %v, want %v", topic, code, mqtt.Success)
		}
	}
	for range 1000 {
		publish("waits", 1000)
	}
	b.each(func(sh *shard) {
		if sh.dropped == 0 || sh.budget.exhausted() {
			t.Errorf("%d messages dropped, %d of %d bytes kept; want some dropped, and room", sh.dropped, sh.budget.used(), sh.budget.limit)
		}
	})
	for n := range 20 {
		publish("live", 10_000)
		frame, err := to.next()
		if err != nil {
			t.Fatal(err)
		}
		m, err := mqtt.ParsePublish(frame, mqtt.V5)
		if err != nil {
			t.Fatalf("message %d: got %v, %v; want a PUBLISH", n, mqtt.TypeOf(frame), err)
		}
		a := mqtt.Ack{Type: mqtt.PUBACK, ID: m.ID}
		packet, err := a.Append(nil, mqtt.V5)
		to.send(t, packet, err)
	}
	to.close()
	from.close()
	b.clear(t)
}
