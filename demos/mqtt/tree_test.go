package main

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/loopwheel/loopwheel/codec/mqtt"
	"github.com/loopwheel/loopwheel/internal/testkit"
)

// TestTreeModel: the trees find what mqtt.Match, which looks at one filter and one topic, says.
func TestTreeModel(t *testing.T) {
	rng := rand.New(rand.NewPCG(testkit.Seed(t, 1), 0))
	level := func(wild bool) string {
		if wild && rng.IntN(3) == 0 {
			return "+"
		}
		return []string{"", "a", "b", "$c"}[rng.IntN(4)]
	}
	name := func(wild bool) string {
		var levels []string
		for range 1 + rng.IntN(4) {
			levels = append(levels, level(wild))
		}
		if wild && rng.IntN(4) == 0 {
			levels = append(levels, "#")
		}
		return strings.Join(levels, "/")
	}
	b := budget{sum: new(atomic.Int64)}
	subs, kept := tree{budget: &b}, retained{budget: &b}
	var all []*subscription
	topics := map[string]bool{}
	for range 3000 {
		switch rng.IntN(6) {
		case 0, 1:
			if sub := (&subscription{filter: name(true)}); sub.filter != "" {
				subs.at(sub.filter).add(sub)
				all = append(all, sub)
			}
		case 2:
			if len(all) > 0 {
				i := rng.IntN(len(all))
				subs.remove(all[i])
				all = slices.Delete(all, i, i+1)
			}
		case 3:
			if topic := name(false); topic != "" {
				kept.set(&message{topic: topic, payload: []byte("x")})
				topics[topic] = true
			}
		default:
			topic, filter := name(false), name(true)
			if topic == "" || filter == "" {
				continue
			}
			var got, want []string
			subs.match(topic, func(n *node) {
				for _, sub := range n.subs {
					got = append(got, sub.filter)
				}
			})
			for _, sub := range all {
				if mqtt.Match([]byte(sub.filter), []byte(topic)) {
					want = append(want, sub.filter)
				}
			}
			slices.Sort(got)
			slices.Sort(want)
			if !slices.Equal(got, want) {
				t.Fatalf("subscriptions of %q: got %q, want %q", topic, got, want)
			}
			got, want = nil, nil
			kept.match(filter, func(m *message) { got = append(got, m.topic) })
			for topic := range topics {
				if mqtt.Match([]byte(filter), []byte(topic)) {
					want = append(want, topic)
				}
			}
			slices.Sort(got)
			slices.Sort(want)
			if !slices.Equal(got, want) {
				t.Fatalf("retained messages of %q: got %q, want %q", filter, got, want)
			}
		}
	}
	for _, sub := range all {
		subs.remove(sub)
	}
	kept.sweep(func(*message) bool { return true })
	if len(subs.root.children.m) != 0 || len(kept.root.children.m) != 0 || kept.count != 0 || b.used() != 0 {
		t.Errorf("emptied trees keep %d and %d nodes, %d messages, %d bytes; want none", len(subs.root.children.m), len(kept.root.children.m), kept.count, b.used())
	}
}

// TestTreeShrinks: a level that had many levels below it does not keep the memory for them.
func TestTreeShrinks(t *testing.T) {
	b := budget{sum: new(atomic.Int64)}
	subs, kept := tree{budget: &b}, retained{budget: &b}
	before := heap()
	for n := range 20 {
		var all []*subscription
		for i := range 10_000 {
			name := fmt.Sprint(n, "/", i)
			all = append(all, &subscription{filter: name})
			subs.at(name).add(all[i])
			kept.set(&message{topic: name, payload: []byte{byte(i)}})
		}
		for _, sub := range all[1:] {
			subs.remove(sub)
		}
		kept.sweep(func(m *message) bool { return m.payload[0] != 0 })
	}
	if grown := heap() - before; grown > int(b.used())*5/4+100_000 {
		t.Errorf("got %d bytes on the heap, want not much more than the %d that are counted", grown, b.used())
	}
	runtime.KeepAlive([]any{&subs, &kept})
}
