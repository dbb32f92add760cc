package store

import (
	"math"
	"slices"
)

var _ = register([]Command{
	{Name: "zunion", Arity: -3, Keys: func(a [][]byte) [][]byte { return counted(a, 1) }, run: func(x *Call) { x.zcombine(1, nil, zunion) }},
	{Name: "zinter", Arity: -3, Keys: func(a [][]byte) [][]byte { return counted(a, 1) }, run: func(x *Call) { x.zcombine(1, nil, zinter) }},
	{Name: "zdiff", Arity: -3, Keys: func(a [][]byte) [][]byte { return counted(a, 1) }, run: func(x *Call) { x.zcombine(1, nil, zdiff) }},
	{Name: "zunionstore", Arity: -4, Flags: Write | DenyOOM, Keys: storeKeys, run: func(x *Call) { x.zcombine(2, x.Args[1], zunion) }},
	{Name: "zinterstore", Arity: -4, Flags: Write | DenyOOM, Keys: storeKeys, run: func(x *Call) { x.zcombine(2, x.Args[1], zinter) }},
	{Name: "zdiffstore", Arity: -4, Flags: Write | DenyOOM, Keys: storeKeys, run: func(x *Call) { x.zcombine(2, x.Args[1], zdiff) }},
	{Name: "zintercard", Arity: -3, Keys: func(a [][]byte) [][]byte { return counted(a, 1) }, run: zintercard},
})

func storeKeys(args [][]byte) [][]byte {
	return append([][]byte{args[1]}, counted(args, 2)...)
}

// weighted is one of the sets that are combined: a sorted one, or a set whose scores are all 1.
type weighted struct {
	scores *dict[float64]
	weight float64
}

// score returns that of a member with its weight, which may be NaN: merge knows of that.
func (w weighted) score(member string) (float64, bool) {
	i, ok := w.scores.index[member]
	if !ok {
		return 0, false
	}
	return w.scores.list.at(i).val * w.weight, true
}

// times returns a score with its weight; zero times infinity counts as zero.
func (w weighted) times(score float64) float64 {
	if score *= w.weight; math.IsNaN(score) {
		return 0
	}
	return score
}

// scoredAt returns the members at a key, of a sorted set or a set.
func (x *Call) scoredAt(key []byte) (*dict[float64], bool) {
	e := x.DB.get(key)
	if e == nil {
		return new(dict[float64]), true
	}
	switch v := e.val.(type) {
	case *zset:
		return &v.scores, true
	case *set:
		d := new(dict[float64])
		for m := range v.list.all() {
			d.add(m.key, 1)
		}
		return d, true
	}
	x.err(errWrongType)
	return nil, false
}

type zop func(sets []weighted, merge func(a, b float64) float64) *zset

func addScores(a, b float64) float64 {
	if sum := a + b; !math.IsNaN(sum) {
		return sum
	}
	return 0 // inf - inf
}

// minScore and maxScore keep a rather than take NaN, or another zero.

func minScore(a, b float64) float64 {
	if b < a {
		return b
	}
	return a
}

func maxScore(a, b float64) float64 {
	if b > a {
		return b
	}
	return a
}

func zunion(sets []weighted, merge func(a, b float64) float64) *zset {
	var sums dict[float64]
	for _, w := range sets {
		for m := range w.scores.list.all() {
			score := w.times(m.val)
			if i, ok := sums.index[m.key]; ok {
				sums.list.at(i).val = merge(sums.list.at(i).val, score)
			} else {
				sums.add(m.key, score)
			}
		}
	}
	return zsetOf(sums)
}

func zsetOf(scores dict[float64]) *zset {
	z := new(zset)
	for m := range scores.list.all() {
		z.set([]byte(m.key), m.val)
	}
	return z
}

func zinter(sets []weighted, merge func(a, b float64) float64) *zset {
	z := new(zset)
next:
	for m := range sets[0].scores.list.all() {
		score := sets[0].times(m.val)
		for _, w := range sets[1:] {
			other, ok := w.score(m.key)
			if !ok {
				continue next
			}
			score = merge(score, other)
		}
		z.set([]byte(m.key), score)
	}
	return z
}

func zdiff(sets []weighted, _ func(a, b float64) float64) *zset {
	z := new(zset)
next:
	for m := range sets[0].scores.list.all() {
		for _, w := range sets[1:] {
			if w.scores.has(m.key) {
				continue next
			}
		}
		z.set([]byte(m.key), m.val)
	}
	return z
}

type combineOptions struct {
	sets   []weighted
	merge  func(a, b float64) float64
	scores bool
}

// parseCombine reads the keys at args[i] and the options behind them.
func (x *Call) parseCombine(i int, store, diff bool) (o combineOptions, ok bool) {
	n, ok := x.parseInt(x.Args[i])
	switch {
	case !ok:
		return o, false
	case n < 1:
		x.err("ERR at least 1 input key is needed for '" + lower(x.Args[0]) + "' command")
		return o, false
	case n > int64(len(x.Args)-i-1):
		x.err(errSyntax)
		return o, false
	}
	o.merge = addScores
	for _, key := range x.Args[i+1 : i+1+int(n)] {
		scores, ok := x.scoredAt(key)
		if !ok {
			return o, false
		}
		o.sets = append(o.sets, weighted{scores, 1})
	}
	return o, x.combineOptions(&o, x.Args[i+1+int(n):], store, diff)
}

func (x *Call) combineOptions(o *combineOptions, args [][]byte, store, diff bool) bool {
	for i := 0; i < len(args); i++ {
		switch a := args[i]; {
		case !diff && is(a, "WEIGHTS") && i+len(o.sets) < len(args):
			for k := range o.sets {
				i++
				weight, ok := parseFloat(args[i])
				if !ok {
					x.err("ERR weight value is not a float")
					return false
				}
				o.sets[k].weight = weight
			}
		case !diff && is(a, "AGGREGATE") && i+1 < len(args):
			i++
			switch {
			case is(args[i], "SUM"):
				o.merge = addScores
			case is(args[i], "MIN"):
				o.merge = minScore
			case is(args[i], "MAX"):
				o.merge = maxScore
			default:
				x.err(errSyntax)
				return false
			}
		case !store && is(a, "WITHSCORES"):
			o.scores = true
		default:
			x.err(errSyntax)
			return false
		}
	}
	return true
}

// zcombine answers what op makes of the sets that args[i:] say, or stores it.
func (x *Call) zcombine(i int, to []byte, op zop) {
	isDiff := x.Args[0][1]|0x20 == 'd'
	o, ok := x.parseCombine(i, to != nil, isDiff)
	if !ok {
		return
	}
	if !isDiff { // the smallest first; that sums of infinities depend on the order is redis-server's way
		slices.SortStableFunc(o.sets, func(a, b weighted) int { return a.scores.len() - b.scores.len() })
	}
	z := op(o.sets, o.merge)
	if to == nil {
		x.members(z.slice(0, z.len(), false), o.scores)
		return
	}
	z.plainZeros()
	x.replace(to, z, z.len(), EventZset, lower(x.Args[0]))
	x.int(z.len())
}

func zintercard(x *Call) {
	n, ok := x.parseInt(x.Args[1])
	switch {
	case !ok:
		return
	case n < 1:
		x.err("ERR at least 1 input key is needed for '" + lower(x.Args[0]) + "' command")
		return
	case n > int64(len(x.Args)-2):
		x.err(errSyntax)
		return
	}
	var sets []weighted
	for _, key := range x.Args[2 : 2+n] {
		scores, ok := x.scoredAt(key)
		if !ok {
			return
		}
		sets = append(sets, weighted{scores, 1})
	}
	limit, ok := x.parseLimit(x.Args[2+n:])
	if !ok {
		return
	}
	x.card(zinter(sets, addScores).len(), limit)
}
