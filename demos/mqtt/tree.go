package main

import (
	"slices"
	"strings"
)

// tree finds the subscriptions of a topic: a node for each level of their filters, where "+" and "#"
// are levels like others. Filters and topics have been checked.
type tree struct {
	root   node
	budget *budget
}

type node struct {
	parent   *node
	level    string
	children branches[node]
	subs     []*subscription // of this filter
	groups   []*group        // shared subscriptions of this filter, on the loop that owns them
}

// branches are the levels below another one.
type branches[N any] struct {
	m    map[string]*N
	peak int // the most that m had: its memory is for so many
}

func (b *branches[N]) put(level string, n *N, count *budget) {
	if b.m == nil {
		b.m = make(map[string]*N)
		count.add(mapCost)
	}
	b.m[level] = n
	b.peak = max(b.peak, len(b.m))
	count.add(levelCost + len(level))
}

func (b *branches[N]) cut(level string, count *budget) {
	delete(b.m, level)
	count.add(-levelCost - len(level))
	if b.m, b.peak = shrink(b.m, b.peak); len(b.m) == 0 {
		b.m = nil
		count.add(-mapCost)
	}
}

// subscription is what one session has subscribed to by one filter.
type subscription struct {
	s         *session
	filter    string
	options   options
	keepFlag  bool // retain as published
	noLocal   bool
	begins    bool // with the retained messages, which are still to be sent
	node      *node
	place     int    // in node.subs
	groupName string // of a shared subscription: its members are in a group, not in a tree
}

// options is how a message is delivered.
type options struct {
	qos    byte
	retain bool
	id     uint32 // the subscription identifier, 0 for none
}

// at returns the node of a filter, and makes those that are missing.
func (t *tree) at(filter string) *node {
	n := &t.root
	for level := range strings.SplitSeq(filter, "/") {
		child := n.children.m[level]
		if child == nil {
			level = strings.Clone(level) // which must not keep the whole filter
			child = &node{parent: n, level: level}
			n.children.put(level, child, t.budget)
		}
		n = child
	}
	return n
}

func (n *node) add(sub *subscription) {
	sub.node, sub.place = n, len(n.subs)
	n.subs = append(n.subs, sub)
}

func (t *tree) remove(sub *subscription) {
	n := sub.node
	last := len(n.subs) - 1
	n.subs[sub.place] = n.subs[last]
	n.subs[sub.place].place = sub.place
	n.subs[last] = nil
	n.subs = n.subs[:last]
	if last < cap(n.subs)/4 {
		n.subs = slices.Clone(n.subs)
	}
	t.prune(n)
}

// prune removes nodes that hold nothing any more.
func (t *tree) prune(n *node) {
	for n.parent != nil && len(n.children.m) == 0 && len(n.subs) == 0 && len(n.groups) == 0 {
		n.parent.children.cut(n.level, t.budget)
		n = n.parent
	}
}

// match calls visit with each node whose filter selects topic.
func (t *tree) match(topic string, visit func(n *node)) {
	t.root.match(topic, true, strings.HasPrefix(topic, "$"), visit)
}

func (n *node) match(rest string, more, noWildcards bool, visit func(n *node)) {
	if len(n.children.m) == 0 {
		if !more {
			visit(n)
		}
		return
	}
	if !noWildcards {
		if all := n.children.m["#"]; all != nil { // "a/#" selects "a", too
			visit(all)
		}
	}
	if !more {
		visit(n)
		return
	}
	level, rest, more := strings.Cut(rest, "/")
	if child := n.children.m[level]; child != nil {
		child.match(rest, more, false, visit)
	}
	if any := n.children.m["+"]; any != nil && !noWildcards {
		any.match(rest, more, false, visit)
	}
}

// retained holds the retained messages of a broker: a tree of topics. Each loop has one, with the
// same contents: all messages cross to all loops anyway. So that they agree on the last message of a
// topic, the newest stamp wins, and a deletion stays for a while as a message without a payload.
type retained struct {
	root   topicNode
	count  int
	budget *budget
}

type topicNode struct {
	children branches[topicNode]
	m        *message
}

// get returns the message of a topic, or nil.
func (r *retained) get(topic string) *message {
	n := &r.root
	for level := range strings.SplitSeq(topic, "/") {
		if n = n.children.m[level]; n == nil {
			return nil
		}
	}
	return n.m
}

func (r *retained) set(m *message) {
	n := &r.root
	for level := range strings.SplitSeq(m.topic, "/") {
		child := n.children.m[level]
		if child == nil {
			child = new(topicNode)
			n.children.put(strings.Clone(level), child, r.budget) // which must not keep the whole topic
		}
		n = child
	}
	switch {
	case n.m == nil:
		r.count++
	case n.m.stamp > m.stamp:
		return
	default:
		n.m.drop(r.budget)
	}
	n.m = m
	m.keep(r.budget)
}

// match calls visit with each retained message that filter selects.
func (r *retained) match(filter string, visit func(m *message)) {
	r.root.match(filter, true, true, visit)
}

func (n *topicNode) match(filter string, more, first bool, visit func(m *message)) {
	if !more {
		n.visit(visit)
		return
	}
	level, rest, more := strings.Cut(filter, "/")
	switch level {
	case "#":
		n.visitAll(first, visit)
	case "+":
		for name, child := range n.children.m {
			if !first || !strings.HasPrefix(name, "$") {
				child.match(rest, more, false, visit)
			}
		}
	default:
		if child := n.children.m[level]; child != nil {
			child.match(rest, more, false, visit)
		}
	}
}

func (n *topicNode) visitAll(first bool, visit func(m *message)) {
	n.visit(visit)
	for name, child := range n.children.m {
		if !first || !strings.HasPrefix(name, "$") {
			child.visitAll(false, visit)
		}
	}
}

func (n *topicNode) visit(visit func(m *message)) {
	if n.m != nil && len(n.m.payload) > 0 {
		visit(n.m)
	}
}

// sweep removes messages for which gone is true.
func (r *retained) sweep(gone func(m *message) bool) { r.root.sweep(r, gone) }

func (n *topicNode) sweep(r *retained, gone func(m *message) bool) (empty bool) {
	if n.m != nil && gone(n.m) {
		n.m.drop(r.budget)
		n.m = nil
		r.count--
	}
	for name, child := range n.children.m {
		if child.sweep(r, gone) {
			n.children.cut(name, r.budget)
		}
	}
	return n.m == nil && len(n.children.m) == 0
}
