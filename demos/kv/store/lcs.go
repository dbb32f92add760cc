package store

import "slices"

type lcsOptions struct {
	length, index, withLength bool
	min                       int64
}

func (x *Call) parseLCS() (o lcsOptions, ok bool) {
	for i := 3; i < len(x.Args); i++ {
		switch a := x.Args[i]; {
		case is(a, "LEN"):
			o.length = true
		case is(a, "IDX"):
			o.index = true
		case is(a, "WITHMATCHLEN"):
			o.withLength = true
		case is(a, "MINMATCHLEN") && i+1 < len(x.Args):
			i++
			if o.min, ok = x.parseInt(x.Args[i]); !ok {
				return o, false
			}
		default:
			x.err(errSyntax)
			return o, false
		}
	}
	if o.index && o.length {
		x.err("ERR If you want both the length and indexes, please just use IDX.")
		return o, false
	}
	return o, true
}

// lcsMost bounds the table, in cells of four bytes: the loop waits while it is filled.
const lcsMost = 1 << 26

// lcs finds the longest common subsequence by dynamic programming.
func lcs(x *Call) {
	first, second := x.DB.get(x.Args[1]), x.DB.get(x.Args[2])
	if first != nil && first.val != nil || second != nil && second.val != nil {
		x.err("ERR The specified keys must contain string values")
		return
	}
	var a, b []byte
	if first != nil {
		a = first.str
	}
	if second != nil {
		b = second.str
	}
	o, ok := x.parseLCS()
	if !ok {
		return
	}
	if (len(a)+1)*(len(b)+1) > lcsMost {
		x.err("ERR Insufficient memory, transient memory for LCS exceeds proto-max-bulk-len")
		return
	}
	table := lcsTable(a, b)
	length := int(table[len(table)-1])
	if o.length {
		x.int(length)
		return
	}
	common, ranges := lcsWalk(a, b, table)
	if !o.index {
		x.bulk(common)
		return
	}
	x.lcsIndex(ranges, length, o)
}

// lcsTable returns, at i*(len(b)+1)+j, the length for the first i bytes of a and j of b.
func lcsTable(a, b []byte) []uint32 {
	w := len(b) + 1
	t := make([]uint32, (len(a)+1)*w)
	for i := range a {
		for j := range b {
			if a[i] == b[j] {
				t[(i+1)*w+j+1] = t[i*w+j] + 1
			} else {
				t[(i+1)*w+j+1] = max(t[i*w+j+1], t[(i+1)*w+j])
			}
		}
	}
	return t
}

type lcsRange struct{ a, b, n int }

// lcsWalk goes through the table from its end, and returns what is common, and where, last first.
func lcsWalk(a, b []byte, t []uint32) (common []byte, ranges []lcsRange) {
	w := len(b) + 1
	for i, j := len(a), len(b); i > 0 && j > 0; {
		switch {
		case a[i-1] == b[j-1]:
			i, j = i-1, j-1
			common = append(common, a[i])
			if last := len(ranges) - 1; last >= 0 && ranges[last].a == i+1 && ranges[last].b == j+1 {
				ranges[last] = lcsRange{i, j, ranges[last].n + 1}
			} else {
				ranges = append(ranges, lcsRange{i, j, 1})
			}
		case t[(i-1)*w+j] > t[i*w+j-1]:
			i--
		default:
			j--
		}
	}
	slices.Reverse(common)
	return common, ranges
}

func (x *Call) lcsIndex(ranges []lcsRange, length int, o lcsOptions) {
	ranges = slices.DeleteFunc(ranges, func(r lcsRange) bool { return int64(r.n) < o.min })
	x.Out = x.V.AppendMap(x.Out, 2)
	x.bulkString("matches")
	x.array(len(ranges))
	for _, r := range ranges {
		if o.withLength {
			x.array(3)
		} else {
			x.array(2)
		}
		for _, from := range []int{r.a, r.b} {
			x.array(2)
			x.int(from)
			x.int(from + r.n - 1)
		}
		if o.withLength {
			x.int(r.n)
		}
	}
	x.bulkString("len")
	x.int(length)
}
