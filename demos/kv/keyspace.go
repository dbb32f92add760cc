package main

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"

	"github.com/loopwheel/loopwheel/loop"
)

func flushall(s *session, args [][]byte) error {
	if len(args) > 2 || len(args) == 2 && !is(args[1], "SYNC") && !is(args[1], "ASYNC") {
		return s.refuse(errSyntax)
	}
	return s.gather(s.loops, (*shard).flush, func() []byte { return []byte(replyOK) })
}

// dbsize is DBSIZE, and info is INFO. Both ask all shards.
func dbsize(s *session, _ [][]byte) error {
	return s.census(func(keys, _, _ int) []byte { return appendInt(nil, int64(keys)) })
}

func info(s *session, args [][]byte) error {
	wanted := strings.ToLower(string(bytes.Join(args, []byte(" "))) + " ")
	return s.census(func(keys, expires, expired int) []byte {
		net, keyspace := s.server.net.Stats(), ""
		if keys > 0 {
			keyspace = fmt.Sprintf("db0:keys=%d,expires=%d,avg_ttl=0\r\n", keys, expires)
		}
		var sections []string
		for _, text := range []string{
			fmt.Sprintf("# Server\r\nredis_version:%s\r\nredis_mode:standalone\r\nloops:%d\r\n", version, len(s.loops)),
			fmt.Sprintf("# Clients\r\nconnected_clients:%d\r\n", net.Conns),
			fmt.Sprintf("# Stats\r\ntotal_commands_processed:%d\r\nexpired_keys:%d\r\n", net.Messages, expired),
			"# Keyspace\r\n" + keyspace,
		} {
			name, _, _ := strings.Cut(strings.ToLower(text[1:]), "\r")
			if len(args) == 1 || strings.Contains(wanted, name+" ") {
				sections = append(sections, text)
			}
		}
		return appendBulk(nil, strings.Join(sections, "\r\n"))
	})
}

// census asks all shards how many keys they have, how many of them expire, and how many have
// expired.
func (s *session) census(reply func(keys, expires, expired int) []byte) error {
	counts := make([][3]int, len(s.loops))
	return s.gather(s.loops,
		func(sh *shard) { counts[sh.loop.Index()] = [3]int{len(sh.keys), sh.expiring, sh.expired} },
		func() []byte {
			keys, expires, expired := 0, 0, 0
			for _, c := range counts {
				keys, expires, expired = keys+c[0], expires+c[1], expired+c[2]
			}
			return reply(keys, expires, expired)
		})
}

// scan is SCAN cursor [MATCH pattern] [COUNT count]. It walks over one shard after the other. A
// cursor is that of a shard, times the number of shards, and the index of the shard.
func scan(s *session, args [][]byte) error {
	cursor, valid := parseCursor(args[1])
	if !valid {
		return s.refuse("ERR invalid cursor")
	}
	count, pattern := int64(10), []byte("*")
	for i := 2; i < len(args); i += 2 {
		switch {
		case i+1 < len(args) && is(args[i], "MATCH"):
			pattern = bytes.Clone(args[i+1])
		case i+1 == len(args) || !is(args[i], "COUNT"):
			return s.refuse(errSyntax)
		default:
			n, isInt := parseInt(args[i+1])
			if !isInt {
				return s.refuse(errNotInt)
			}
			if count = n; count < 1 {
				return s.refuse(errSyntax)
			}
		}
	}
	n := uint64(len(s.loops))
	at := cursor % n
	var next uint64
	var keys []string
	return s.gather([]*loop.Loop{s.loops[at]},
		func(sh *shard) { next, keys = sh.scan(cursor/n, count, pattern) },
		func() []byte {
			if next = next*n + at; next == at { // the end of this shard
				next = (at + 1) % n
			}
			out := appendBulk([]byte("*2\r\n"), strconv.FormatUint(next, 10))
			out = appendHead(out, '*', int64(len(keys)))
			for _, key := range keys {
				out = appendBulk(out, key)
			}
			return out
		})
}

// parseCursor reads a cursor as C's strtoul does, which takes a sign, and nothing for 0.
func parseCursor(b []byte) (cursor uint64, ok bool) {
	text := cString(b)
	digits, signed := strings.CutPrefix(text, "-")
	if !signed {
		digits = strings.TrimPrefix(text, "+")
	}
	cursor, err := strconv.ParseUint(digits, 10, 64)
	return cursor, err == nil || text == ""
}

// scan returns up to count keys, fewer if they are longer than maxReply, and a cursor for those
// after them, 0 at the end. It walks from the
// end of the list to its start. A removed key leaves its place to the last one, which the walk has
// seen already: so it misses no key that is there all the time.
func (sh *shard) scan(cursor uint64, count int64, pattern []byte) (next uint64, keys []string) {
	to := len(sh.list)
	if cursor > 0 && cursor < uint64(to) {
		to = int(cursor)
	}
	from := to
	for size := 0; from > 0 && int64(to-from) < count; from-- {
		if size += len(sh.list[from-1].key); size > maxReply && from < to {
			break
		}
	}
	for _, e := range sh.list[from:to] {
		if !e.overdue() && match(pattern, []byte(e.key)) {
			keys = append(keys, e.key)
		}
	}
	return uint64(from), keys
}

// match reports whether s matches a pattern: * is any bytes, ? is one, [a-z] and [^a-z] are one of
// these or none of them, and \ takes what follows as it is.
func match(pattern, s []byte) bool {
	if len(s) == 0 { // redis-server compares nothing then
		return len(pattern) == 0 || string(pattern) == "*"
	}
	// Where the last * is, and what of s it stands for so far: only the last one is ever tried
	// again.
	star, from := -1, 0
	for p, i := 0, 0; ; {
		switch next, ok := matchOne(pattern[p:], s[i:]); {
		case p < len(pattern) && pattern[p] == '*':
			star, from = p, i
			p++
		case i == len(s) && p == len(pattern):
			return true
		case ok:
			p, i = p+next, i+1
		case star < 0 || from == len(s):
			return false
		default:
			from++
			p, i = star+1, from
		}
	}
}

// matchOne matches the first byte of s with the beginning of a pattern, which is no *, and returns
// how long that is.
func matchOne(pattern, s []byte) (n int, ok bool) {
	if len(pattern) == 0 || len(s) == 0 {
		return 0, false
	}
	switch {
	case pattern[0] == '\\' && len(pattern) > 1:
		return 2, pattern[1] == s[0]
	case pattern[0] != '[':
		return 1, pattern[0] == '?' || pattern[0] == s[0]
	}
	n = 1
	not := len(pattern) > 1 && pattern[1] == '^'
	if not {
		n = 2
	}
	for ; n < len(pattern) && pattern[n] != ']'; n++ {
		escaped := pattern[n] == '\\' && n+1 < len(pattern)
		if escaped {
			n++
		}
		low, high := pattern[n], pattern[n]
		if !escaped && n+2 < len(pattern) && pattern[n+1] == '-' {
			n += 2
			low, high = min(low, pattern[n]), max(low, pattern[n])
		}
		ok = ok || low <= s[0] && s[0] <= high
	}
	return min(n+1, len(pattern)), ok != not
}
