package store

var _ = register([]Command{
	{Name: "zrange", Arity: -4, First: 1, Last: 1, Step: 1, run: func(x *Call) { x.zrange(x.Args[1:], nil, rangeOptions{}) }},
	{Name: "zrevrange", Arity: -4, First: 1, Last: 1, Step: 1, run: func(x *Call) { x.zrange(x.Args[1:], nil, rangeOptions{old: true, rev: true}) }},
	{Name: "zrangebyscore", Arity: -4, First: 1, Last: 1, Step: 1, run: func(x *Call) { x.zrange(x.Args[1:], nil, rangeOptions{old: true, by: byScore}) }},
	{Name: "zrevrangebyscore", Arity: -4, First: 1, Last: 1, Step: 1, run: func(x *Call) { x.zrange(x.Args[1:], nil, rangeOptions{old: true, by: byScore, rev: true}) }},
	{Name: "zrangebylex", Arity: -4, First: 1, Last: 1, Step: 1, run: func(x *Call) { x.zrange(x.Args[1:], nil, rangeOptions{old: true, by: byLex}) }},
	{Name: "zrevrangebylex", Arity: -4, First: 1, Last: 1, Step: 1, run: func(x *Call) { x.zrange(x.Args[1:], nil, rangeOptions{old: true, by: byLex, rev: true}) }},
	{Name: "zrangestore", Arity: -5, Flags: Write | DenyOOM, First: 1, Last: 2, Step: 1, run: func(x *Call) { x.zrange(x.Args[2:], x.Args[1], rangeOptions{}) }},
	{Name: "zcount", Arity: 4, First: 1, Last: 1, Step: 1, run: func(x *Call) { x.zcount((*Call).parseScores) }},
	{Name: "zlexcount", Arity: 4, First: 1, Last: 1, Step: 1, run: func(x *Call) { x.zcount((*Call).parseLex) }},
	{Name: "zremrangebyrank", Arity: 4, Flags: Write, First: 1, Last: 1, Step: 1, run: zremrangebyrank},
	{Name: "zremrangebyscore", Arity: 4, Flags: Write, First: 1, Last: 1, Step: 1, run: func(x *Call) { x.zremrange((*Call).parseScores) }},
	{Name: "zremrangebylex", Arity: 4, Flags: Write, First: 1, Last: 1, Step: 1, run: func(x *Call) { x.zremrange((*Call).parseLex) }},
})

const (
	byRank = iota
	byScore
	byLex
)

// rangeOptions are those of ZRANGE. The old commands, one for each kind of range, have theirs by
// name.
type rangeOptions struct {
	old, rev, scores, limited bool
	by                        int
	offset, count             int64
}

func (x *Call) parseRange(args [][]byte, store bool, o rangeOptions) (_ rangeOptions, ok bool) {
	o.count = -1
	for i := 0; i < len(args); i++ {
		switch a := args[i]; {
		case !store && is(a, "WITHSCORES"):
			o.scores = true
		case is(a, "LIMIT") && i+2 < len(args):
			if o.offset, ok = x.parseInt(args[i+1]); !ok {
				return o, false
			}
			if o.count, ok = x.parseInt(args[i+2]); !ok {
				return o, false
			}
			o.limited = true
			i += 2
		case !o.old && !o.rev && is(a, "REV"):
			o.rev = true
		case !o.old && o.by == byRank && is(a, "BYSCORE"):
			o.by = byScore
		case !o.old && o.by == byRank && is(a, "BYLEX"):
			o.by = byLex
		default:
			x.err(errSyntax)
			return o, false
		}
	}
	switch {
	case o.limited && o.count != -1 && o.by == byRank:
		x.err("ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX")
	case o.scores && o.by == byLex:
		x.err("ERR syntax error, WITHSCORES not supported in combination with BYLEX")
	default:
		return o, true
	}
	return o, false
}

// bounds returns a function for the ranks [from, to) of a range, nil if an error was answered.
func (x *Call) bounds(first, last []byte, o rangeOptions) func(z *zset) (from, to int) {
	if o.by == byRank {
		a, ok := x.parseInt(first)
		if !ok {
			return nil
		}
		b, ok := x.parseInt(last)
		if !ok {
			return nil
		}
		return func(z *zset) (from, to int) {
			from, to = span(a, b, z.len())
			if o.rev {
				from, to = z.len()-to, z.len()-from
			}
			return from, to
		}
	}
	if o.rev {
		first, last = last, first
	}
	parse := (*Call).parseScores
	if o.by == byLex {
		parse = (*Call).parseLex
	}
	r, ok := parse(x, first, last)
	if !ok {
		return nil
	}
	return func(z *zset) (from, to int) {
		from, to = z.ranks(r)
		return o.limit(from, to)
	}
}

// limit cuts a range to what LIMIT says.
func (o rangeOptions) limit(from, to int) (int, int) {
	n := int64(to - from)
	if !o.limited {
		return from, to
	}
	if o.offset < 0 || o.offset >= n {
		return from, from
	}
	count := n - o.offset
	if o.count >= 0 {
		count = min(count, o.count)
	}
	if o.rev {
		to -= int(o.offset)
		return to - int(count), to
	}
	from += int(o.offset)
	return from, from + int(count)
}

// zrange answers a range of the key args[0], or stores it. args[1] and args[2] say which.
func (x *Call) zrange(args [][]byte, to []byte, o rangeOptions) {
	o, ok := x.parseRange(args[3:], to != nil, o)
	if !ok {
		return
	}
	bounds := x.bounds(args[1], args[2], o)
	if bounds == nil {
		return
	}
	z, ok := x.zsetAt(args[0])
	if !ok {
		return
	}
	from, until := bounds(z)
	found := z.slice(from, until, o.rev)
	if to == nil {
		x.members(found, o.scores)
		return
	}
	result := new(zset)
	for _, s := range found {
		result.set([]byte(s.member), s.score)
	}
	x.replace(to, result, result.len(), EventZset, "zrangestore")
	x.int(result.len())
}

type parseRange = func(x *Call, low, high []byte) (zrange, bool)

func (x *Call) zcount(parse parseRange) {
	r, ok := parse(x, x.Args[2], x.Args[3])
	if !ok {
		return
	}
	if z, ok := x.zsetAt(x.Args[1]); ok {
		from, to := z.ranks(r)
		x.int(to - from)
	}
}

func zremrangebyrank(x *Call) {
	bounds := x.bounds(x.Args[2], x.Args[3], rangeOptions{})
	if bounds == nil {
		return
	}
	if z, e, ok := lookup[zset](x, x.Args[1]); ok {
		if e == nil {
			x.int(0)
			return
		}
		from, to := bounds(z)
		x.removeRanks(e, z, from, to)
	}
}

func (x *Call) zremrange(parse parseRange) {
	r, ok := parse(x, x.Args[2], x.Args[3])
	if !ok {
		return
	}
	if z, e, ok := lookup[zset](x, x.Args[1]); ok {
		if e == nil {
			x.int(0)
			return
		}
		from, to := z.ranks(r)
		x.removeRanks(e, z, from, to)
	}
}

func (x *Call) removeRanks(e *entry, z *zset, from, to int) {
	gone := z.slice(from, to, false)
	for _, s := range gone {
		z.remove(s.member)
	}
	x.removed(e, z, len(gone), lower(x.Args[0]))
	x.int(len(gone))
}
