package store

// Match reports whether s matches a pattern of KEYS and PSUBSCRIBE: * any bytes, ? one, [a-z] and
// [^a-z] one of these or none of them, and \ takes what follows as it is.
func Match(pattern, s []byte) bool {
	if len(s) == 0 { // redis-server compares nothing then
		return len(pattern) == 0 || string(pattern) == "*"
	}
	// Where the last * is, and what of s it stands for so far: with an iterative match only the
	// last one has ever to be tried again.
	star, from := -1, 0
	p, i := 0, 0
	for i < len(s) {
		if p < len(pattern) && pattern[p] == '*' {
			star, from = p, i
			p++
			continue
		}
		if p < len(pattern) {
			if next, ok := matchOne(pattern, p, s[i]); ok {
				p, i = next, i+1
				continue
			}
		}
		if star < 0 {
			return false
		}
		from++
		p, i = star+1, from
	}
	for p < len(pattern) && pattern[p] == '*' {
		p++
	}
	return p == len(pattern)
}

// matchOne matches a byte with what is at pattern[p], which is no *, and returns what follows that.
func matchOne(pattern []byte, p int, b byte) (next int, ok bool) {
	switch c := pattern[p]; {
	case c == '?':
		return p + 1, true
	case c == '[':
		return matchClass(pattern, p+1, b)
	case c == '\\' && p+1 < len(pattern):
		return p + 2, pattern[p+1] == b
	default:
		return p + 1, c == b
	}
}

func matchClass(pattern []byte, p int, b byte) (next int, ok bool) {
	not := p < len(pattern) && pattern[p] == '^'
	if not {
		p++
	}
	for ; p < len(pattern) && pattern[p] != ']'; p++ {
		switch {
		case pattern[p] == '\\' && p+1 < len(pattern):
			p++
			ok = ok || pattern[p] == b
		case p+2 < len(pattern) && pattern[p+1] == '-':
			low, high := pattern[p], pattern[p+2]
			ok = ok || b >= min(low, high) && b <= max(low, high)
			p += 2
		default:
			ok = ok || pattern[p] == b
		}
	}
	return min(p+1, len(pattern)), ok != not
}
