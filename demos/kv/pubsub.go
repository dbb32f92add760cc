package main

import (
	"bytes"

	"github.com/loopwheel/loopwheel/codec/resp"
	"github.com/loopwheel/loopwheel/demos/kv/store"
)

// pubsub is who listens to what, of the clients of one loop. A message goes to each loop once.
type pubsub struct {
	channels, patterns audience

	wire [2][]byte // the message in hand in each version of the protocol, empty if not needed yet
}

type audience map[string]map[*session]struct{}

func (a *audience) join(name string, s *session) {
	if *a == nil {
		*a = make(audience)
	}
	if (*a)[name] == nil {
		(*a)[name] = make(map[*session]struct{})
	}
	(*a)[name][s] = struct{}{}
}

func (a audience) leave(name string, s *session) {
	if delete(a[name], s); len(a[name]) == 0 {
		delete(a, name)
	}
}

// forget ends all that a client listens to.
func (p *pubsub) forget(s *session) {
	for name := range s.subs.channels {
		p.channels.leave(name, s)
	}
	for name := range s.subs.patterns {
		p.patterns.leave(name, s)
	}
	s.subs = subscriptions{}
}

// publish sends a message to those on this loop who listen, and returns how many those are.
func (p *pubsub) publish(channel, message []byte) int {
	n := 0
	p.begin()
	for s := range p.channels[string(channel)] {
		if len(p.wire[s.version]) == 0 {
			p.wire[s.version] = appendPush(p.wire[s.version], s.version, "message", channel, message)
		}
		s.push(p.wire[s.version])
		n++
	}
	for pattern, audience := range p.patterns {
		if !store.Match([]byte(pattern), channel) {
			continue
		}
		p.begin()
		for s := range audience {
			if len(p.wire[s.version]) == 0 {
				p.wire[s.version] = appendPush(p.wire[s.version], s.version, "pmessage", []byte(pattern), channel, message)
			}
			s.push(p.wire[s.version])
			n++
		}
	}
	return n
}

// begin makes room for another message, where the one before was, unless that was very long.
func (p *pubsub) begin() {
	for v := range p.wire {
		if p.wire[v] = p.wire[v][:0]; cap(p.wire[v]) > highWater {
			p.wire[v] = nil
		}
	}
}

func appendPush(out []byte, v resp.Version, kind string, parts ...[]byte) []byte {
	out = resp.AppendBulk(v.AppendPush(out, 1+len(parts)), kind)
	for _, p := range parts {
		out = resp.AppendBulk(out, p)
	}
	return out
}

// push sends a copy of what is no answer. Who does not read is closed by the limit of its output:
// see maxOutbound.
func (s *session) push(p []byte) {
	if s.version == resp.RESP3 {
		_, _ = s.conn.Write(p)
		return
	}
	_ = s.answers.Write(p) // behind the answer to SUBSCRIBE
}

// notify publishes a keyspace event.
func (sh *shard) notify(_ store.Event, event, key string) {
	if sh.db.Events&store.EventKeyspace != 0 {
		sh.tellAll("__keyspace@0__:", key, event)
	}
	if sh.db.Events&store.EventKeyevent != 0 {
		sh.tellAll("__keyevent@0__:", event, key)
	}
}

// tellAll publishes on all loops, to the channel of a kind of events.
func (sh *shard) tellAll(kind, name, message string) {
	for _, other := range sh.server.shards {
		if other == sh {
			sh.tell(kind, name, message)
		} else if other.loop != nil {
			_ = other.loop.Post(func() { other.tell(kind, name, message) })
		}
	}
}

// tell publishes on this loop, if anybody listens to anything.
func (sh *shard) tell(kind, name, message string) {
	if len(sh.pubsub.channels)+len(sh.pubsub.patterns) == 0 {
		return
	}
	room := append(append(append(sh.told[:0], kind...), name...), message...)
	sh.told = room
	channel := len(kind) + len(name)
	sh.pubsub.publish(room[:channel:channel], room[channel:])
}

// subscriptions are what a client listens to.
type subscriptions struct{ channels, patterns map[string]struct{} }

func (u *subscriptions) len() int { return len(u.channels) + len(u.patterns) }

// only reports whether the client can do nothing but listen, as RESP2 could not tell messages from
// answers.
func (u *subscriptions) only(s *session) bool { return s.version == resp.RESP2 && u.len() > 0 }

func subscribe(s *session, args [][]byte) {
	for _, name := range args[1:] {
		if s.subs.channels == nil {
			s.subs.channels = make(map[string]struct{})
		}
		s.subs.channels[string(name)] = struct{}{}
		s.shard.pubsub.channels.join(string(name), s)
		s.confirm("subscribe", name)
	}
}

func psubscribe(s *session, args [][]byte) {
	for _, name := range args[1:] {
		if s.subs.patterns == nil {
			s.subs.patterns = make(map[string]struct{})
		}
		s.subs.patterns[string(name)] = struct{}{}
		s.shard.pubsub.patterns.join(string(name), s)
		s.confirm("psubscribe", name)
	}
}

func unsubscribe(s *session, args [][]byte) {
	s.leave("unsubscribe", args[1:], s.subs.channels, s.shard.pubsub.channels)
}

func punsubscribe(s *session, args [][]byte) {
	s.leave("punsubscribe", args[1:], s.subs.patterns, s.shard.pubsub.patterns)
}

// leave ends subscriptions: to names, or to all there are.
func (s *session) leave(kind string, names [][]byte, own map[string]struct{}, all audience) {
	if len(names) == 0 {
		for name := range own {
			names = append(names, []byte(name))
		}
		if len(names) == 0 {
			s.confirm(kind, nil)
		}
	}
	for _, name := range names {
		delete(own, string(name))
		all.leave(string(name), s)
		s.confirm(kind, name)
	}
}

// confirm tells the client what it listens to now.
func (s *session) confirm(kind string, name []byte) {
	out := resp.AppendBulk(s.version.AppendPush(nil, 3), kind)
	if name == nil {
		out = s.version.AppendNull(out)
	} else {
		out = resp.AppendBulk(out, name)
	}
	out = resp.AppendInt(out, int64(s.subs.len()))
	if s.capture != nil {
		s.write(out)
		return
	}
	_ = s.answers.Write(out) // also with CLIENT REPLY OFF
}

func publish(s *session, args [][]byte) {
	if len(s.server.shards) == 1 {
		s.write(resp.AppendInt(nil, int64(s.shard.pubsub.publish(args[1], args[2]))))
		return
	}
	args = cloneArgs(args)
	s.sum(func(sh *shard) int { return sh.pubsub.publish(args[1], args[2]) })
}

// sum answers the sum of a number over all shards.
func (s *session) sum(f func(sh *shard) int) {
	if len(s.server.shards) == 1 {
		s.write(resp.AppendInt(nil, int64(f(s.shard))))
		return
	}
	s.gather(false, func(sh *shard) []byte { return resp.AppendInt(nil, int64(f(sh))) },
		func(parts [][]byte) []byte { return merge("dbsize", parts) })
}

var pubsubCommands = []command{
	{name: "pubsub|channels", arity: -2, run: channels},
	{name: "pubsub|numpat", arity: 2, run: numPat},
	{name: "pubsub|numsub", arity: -2, run: numSub},
	{name: "pubsub|help", arity: 2, run: help(pubsubHelp)},
}

func numPat(s *session, _ [][]byte) {
	s.sum(func(sh *shard) int { return len(sh.pubsub.patterns) })
}

func channels(s *session, args [][]byte) {
	var pattern []byte
	switch {
	case len(args) > 3:
		s.refuse(wrongSyntax(args))
		return
	case len(args) == 3:
		pattern = bytes.Clone(args[2])
	}
	list := func(sh *shard) []byte {
		var names []byte
		n := 0
		for name := range sh.pubsub.channels {
			if len(pattern) == 0 || store.Match(pattern, []byte(name)) {
				names = resp.AppendBulk(names, name)
				n++
			}
		}
		return append(resp.AppendArray(nil, n), names...)
	}
	if len(s.server.shards) == 1 {
		s.write(list(s.shard))
		return
	}
	s.gather(false, list, uniqueStrings)
}

// uniqueStrings makes one array of several, in which each string is once.
func uniqueStrings(arrays [][]byte) []byte {
	seen := make(map[string]bool)
	var names []byte
	for _, a := range arrays {
		v, _ := resp.Parse(a)
		for _, e := range v.Elems {
			if !seen[string(e.Str)] {
				seen[string(e.Str)] = true
				names = resp.AppendBulk(names, e.Str)
			}
		}
	}
	return append(resp.AppendArray(nil, len(seen)), names...)
}

func numSub(s *session, args [][]byte) {
	names := cloneArgs(args[2:])
	count := func(sh *shard) []byte {
		out := resp.AppendArray(nil, 2*len(names))
		for _, name := range names {
			out = resp.AppendBulk(out, name)
			out = resp.AppendInt(out, int64(len(sh.pubsub.channels[string(name)])))
		}
		return out
	}
	if len(s.server.shards) == 1 {
		s.write(count(s.shard))
		return
	}
	s.gather(false, count, func(parts [][]byte) []byte {
		sums := make([]int64, len(names))
		for _, p := range parts {
			v, _ := resp.Parse(p)
			for i := range sums {
				sums[i] += v.Elems[2*i+1].Int
			}
		}
		out := resp.AppendArray(nil, 2*len(names))
		for i, name := range names {
			out = resp.AppendInt(resp.AppendBulk(out, name), sums[i])
		}
		return out
	})
}
