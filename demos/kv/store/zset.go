package store

import (
	"bytes"
	"sort"

	"github.com/tidwall/btree"

	"github.com/loopwheel/loopwheel/codec/resp"
)

// A zset is a sorted set: scores by member, and a counted B-tree of both in their order, which
// knows the n-th.
type zset struct {
	scores dict[float64]
	tree   *btree.BTreeG[scored]

	changed bool // by the last apply
}

type scored struct {
	score  float64
	member string
}

func before(a, b scored) bool {
	return a.score < b.score || a.score == b.score && a.member < b.member
}

func (z *zset) len() int { return z.scores.len() }

// plainZero takes the sign from -0, as redis-server does when it stores a score (of a set that is
// not large).
func plainZero(score float64) float64 {
	if score == 0 {
		return 0
	}
	return score
}

// plainZeros does so for all members.
func (z *zset) plainZeros() {
	from, to := z.ranks(zrange{
		below: func(s scored) bool { return s.score < 0 },
		above: func(s scored) bool { return s.score > 0 },
	})
	for _, s := range z.slice(from, to, false) {
		z.scores.set([]byte(s.member), 0)
		z.tree.Set(scored{0, s.member})
	}
}

// set gives a member a score. It reports whether the member is new.
func (z *zset) set(member []byte, score float64) bool {
	if z.tree == nil {
		z.tree = btree.NewBTreeGOptions(before, btree.Options{NoLocks: true, Degree: 16})
	}
	old, found := z.scores.get(member)
	if found && old == score {
		return false
	}
	name := string(member)
	if found {
		z.tree.Delete(scored{old, name})
	}
	z.scores.set(member, score)
	z.tree.Set(scored{score, name})
	return !found
}

func (z *zset) remove(member string) bool {
	score, ok := z.scores.get([]byte(member))
	if ok {
		z.tree.Delete(scored{score, member})
		z.scores.remove(member)
	}
	return ok
}

func (z *zset) clone() *zset {
	c := &zset{scores: z.scores.clone()}
	if z.tree != nil {
		c.tree = z.tree.Copy()
	}
	return c
}

// search returns the rank of the first for which f is true, which must be so for all behind it.
func (z *zset) search(f func(scored) bool) int {
	return sort.Search(z.len(), func(i int) bool {
		s, _ := z.tree.GetAt(i)
		return f(s)
	})
}

// rank returns the place of a member in the order.
func (z *zset) rank(member []byte) (int, bool) {
	score, ok := z.scores.get(member)
	if !ok {
		return 0, false
	}
	own := scored{score, string(member)}
	return z.search(func(s scored) bool { return !before(s, own) }), true
}

// slice returns the members of ranks [from, to), last first if reverse.
func (z *zset) slice(from, to int, reverse bool) []scored {
	n := to - from
	if n <= 0 {
		return nil
	}
	out := make([]scored, 0, n)
	collect := func(s scored) bool {
		out = append(out, s)
		return len(out) < n
	}
	if reverse {
		last, _ := z.tree.GetAt(to - 1)
		z.tree.Descend(last, collect)
	} else {
		first, _ := z.tree.GetAt(from)
		z.tree.Ascend(first, collect)
	}
	return out
}

// A zrange is a part of the order: from the first that is not below to the last that is not above.
type zrange struct{ below, above func(scored) bool }

// ranks returns the ranks [from, to) of a range.
func (z *zset) ranks(r zrange) (from, to int) {
	from = z.search(func(s scored) bool { return !r.below(s) })
	to = z.search(r.above)
	return from, max(from, to)
}

// parseScores reads a range as "1", "(1", "-inf".
func (x *Call) parseScores(low, high []byte) (r zrange, ok bool) {
	a, aOpen, ok := scoreBound(low)
	if ok {
		b, bOpen, ok := scoreBound(high)
		if ok {
			return zrange{
				below: func(s scored) bool { return s.score < a || aOpen && s.score == a },
				above: func(s scored) bool { return s.score > b || bOpen && s.score == b },
			}, true
		}
	}
	x.err("ERR min or max is not a float")
	return r, false
}

// scoreBound reads one end of a range, less strictly than a score: blanks may come first, what
// comes behind a zero byte does not count, nothing is 0, and what is too large is infinite.
func scoreBound(b []byte) (f float64, open, ok bool) {
	if len(b) > 0 && b[0] == '(' {
		b, open = b[1:], true
	}
	if b, _, _ = bytes.Cut(b, []byte{0}); len(b) == 0 {
		return 0, open, true
	}
	f, _, ok = strtod(bytes.TrimLeft(b, " \t\n\v\f\r"))
	return f, open, ok
}

// parseLex reads a range as "[a", "(a", "-", "+".
func (x *Call) parseLex(low, high []byte) (r zrange, ok bool) {
	below, okLow := lexBound(low, true)
	above, okHigh := lexBound(high, false)
	if !okLow || !okHigh {
		x.err("ERR min or max not valid string range item")
		return r, false
	}
	return zrange{below, above}, true
}

// lexBound returns whether a member is outside of a bound: below a low one, above a high one.
func lexBound(b []byte, low bool) (outside func(scored) bool, ok bool) {
	switch {
	case string(b) == "-":
		return func(scored) bool { return !low }, true
	case string(b) == "+":
		return func(scored) bool { return low }, true
	case len(b) == 0 || b[0] != '[' && b[0] != '(':
		return nil, false
	}
	open, name := b[0] == '(', string(b[1:])
	if low {
		return func(s scored) bool { return s.member < name || open && s.member == name }, true
	}
	return func(s scored) bool { return s.member > name || open && s.member == name }, true
}

// appendScore writes a score so that it is read as the same again.
func appendScore(f float64) []byte { return resp.AppendFloat(nil, f) }
