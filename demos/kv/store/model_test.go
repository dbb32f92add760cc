package store

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"github.com/loopwheel/loopwheel/codec/resp"
)

// A model is what the store must be like, in the plainest structures that there are: a value is a
// string, []string, map[string]string, map[string]bool or map[string]float64.
type model map[string]any

const wrongType = "(error) " + errWrongType

// valueAt returns the value of a key; ok is false if it is another kind of value.
func valueAt[T any](m model, key string) (v T, ok bool) {
	if m[key] == nil {
		return v, true
	}
	v, ok = m[key].(T)
	return v, ok
}

// put keeps a value, unless it is an empty collection.
func put[T any](m model, key string, v T, n int) {
	if n == 0 {
		delete(m, key)
	} else {
		m[key] = v
	}
}

// run returns what a command answers, as show gives it.
func (m model) run(a []string) string {
	key := a[1]
	switch a[0] {
	case "DEL":
		_, there := m[key]
		delete(m, key)
		return bit(there)
	case "EXISTS":
		return bit(m[key] != nil)
	case "TYPE":
		return kindOf(m[key])
	case "RENAME":
		return m.rename(key, a[2])
	case "COPY":
		return m.copy(key, a[2])
	}
	switch a[0][0] {
	case 'L', 'R':
		return m.list(a)
	case 'H':
		return m.hash(a)
	case 'Z':
		return m.zset(a)
	}
	if strings.HasPrefix(a[0], "S") && a[0] != "SET" && a[0] != "STRLEN" && a[0] != "SETRANGE" {
		return m.set(a)
	}
	return m.str(a)
}

func bit(yes bool) string {
	if yes {
		return "1"
	}
	return "0"
}

func kindOf(v any) string {
	switch v.(type) {
	case string:
		return "string"
	case []string:
		return "list"
	case map[string]string:
		return "hash"
	case map[string]bool:
		return "set"
	case map[string]float64:
		return "zset"
	}
	return "none"
}

func (m model) rename(from, to string) string {
	if m[from] == nil {
		return "(error) " + errNoKey
	}
	v := m[from]
	delete(m, from)
	m[to] = v
	return "OK"
}

func (m model) copy(from, to string) string {
	if from == to {
		return "(error) ERR source and destination objects are the same"
	}
	if m[from] == nil || m[to] != nil {
		return "0"
	}
	switch v := m[from].(type) {
	case []string:
		m[to] = slices.Clone(v)
	case map[string]string:
		m[to] = maps.Clone(v)
	case map[string]bool:
		m[to] = maps.Clone(v)
	case map[string]float64:
		m[to] = maps.Clone(v)
	default:
		m[to] = v
	}
	return "1"
}

func (m model) str(a []string) string {
	key := a[1]
	if a[0] == "SET" {
		m[key] = a[2]
		return "OK"
	}
	s, ok := valueAt[string](m, key)
	if !ok {
		return wrongType
	}
	switch a[0] {
	case "GET":
		if m[key] == nil {
			return "(nil)"
		}
		return s
	case "APPEND":
		m[key] = s + a[2]
		return strconv.Itoa(len(s) + len(a[2]))
	case "STRLEN":
		return strconv.Itoa(len(s))
	case "SETRANGE":
		from, _ := strconv.Atoi(a[2])
		b := []byte(s)
		for len(b) < from+len(a[3]) {
			b = append(b, 0)
		}
		copy(b[from:], a[3])
		m[key] = string(b)
		return strconv.Itoa(len(b))
	}
	n, err := strconv.ParseInt(s, 10, 64) // INCR
	if m[key] != nil && (err != nil || strconv.FormatInt(n, 10) != s) {
		return "(error) " + errNotInt
	}
	m[key] = strconv.FormatInt(n+1, 10)
	return m[key].(string)
}

func (m model) list(a []string) string {
	key := a[1]
	l, ok := valueAt[[]string](m, key)
	if !ok {
		return wrongType
	}
	switch a[0] {
	case "LPUSH":
		l = slices.Insert(l, 0, a[2])
	case "RPUSH":
		l = append(l, a[2])
	case "LLEN":
		return strconv.Itoa(len(l))
	case "LRANGE":
		return fmt.Sprint(l)
	case "LPOP", "RPOP":
		return m.pop(key, l, a[0] == "LPOP")
	case "LREM":
		kept := slices.DeleteFunc(slices.Clone(l), func(v string) bool { return v == a[3] })
		put(m, key, kept, len(kept))
		return strconv.Itoa(len(l) - len(kept))
	case "LTRIM":
		from, _ := strconv.Atoi(a[2])
		l = slices.Clone(l[min(from, len(l)):])
		put(m, key, l, len(l))
		return "OK"
	case "LINSERT":
		i := slices.Index(l, a[3])
		switch {
		case m[key] == nil:
			return "0"
		case i < 0:
			return "-1"
		}
		l = slices.Insert(l, i, a[4])
	}
	m[key] = l
	return strconv.Itoa(len(l))
}

func (m model) pop(key string, l []string, front bool) string {
	if len(l) == 0 {
		return "(nil)"
	}
	i := len(l) - 1
	if front {
		i = 0
	}
	v := l[i]
	l = slices.Delete(l, i, i+1)
	put(m, key, l, len(l))
	return v
}

func (m model) hash(a []string) string {
	key := a[1]
	h, ok := valueAt[map[string]string](m, key)
	if !ok {
		return wrongType
	}
	switch a[0] {
	case "HSET":
		if h == nil {
			h = make(map[string]string)
			m[key] = h
		}
		_, there := h[a[2]]
		h[a[2]] = a[3]
		return bit(!there)
	case "HDEL":
		_, there := h[a[2]]
		delete(h, a[2])
		put(m, key, h, len(h))
		return bit(there)
	case "HLEN":
		return strconv.Itoa(len(h))
	}
	if v, there := h[a[2]]; there { // HGET
		return v
	}
	return "(nil)"
}

func (m model) set(a []string) string {
	key := a[1]
	s, ok := valueAt[map[string]bool](m, key)
	if !ok {
		return wrongType
	}
	switch a[0] {
	case "SADD":
		if s == nil {
			s = make(map[string]bool)
			m[key] = s
		}
		there := s[a[2]]
		s[a[2]] = true
		return bit(!there)
	case "SREM":
		there := s[a[2]]
		delete(s, a[2])
		put(m, key, s, len(s))
		return bit(there)
	case "SISMEMBER":
		return bit(s[a[2]])
	case "SCARD":
		return strconv.Itoa(len(s))
	}
	return m.combine(a[0], s, a[2])
}

func (m model) combine(op string, s map[string]bool, key string) string {
	other, ok := valueAt[map[string]bool](m, key)
	if !ok {
		return wrongType
	}
	var out []string
	for v := range s {
		if op == "SUNION" || other[v] == (op == "SINTER") {
			out = append(out, v)
		}
	}
	for v := range other {
		if op == "SUNION" && !s[v] {
			out = append(out, v)
		}
	}
	slices.Sort(out)
	return fmt.Sprint(out)
}

func (m model) zset(a []string) string {
	key := a[1]
	z, ok := valueAt[map[string]float64](m, key)
	if !ok {
		return wrongType
	}
	switch a[0] {
	case "ZADD":
		if z == nil {
			z = make(map[string]float64)
			m[key] = z
		}
		_, there := z[a[3]]
		z[a[3]], _ = strconv.ParseFloat(a[2], 64)
		return bit(!there)
	case "ZREM":
		_, there := z[a[2]]
		delete(z, a[2])
		put(m, key, z, len(z))
		return bit(there)
	case "ZCARD":
		return strconv.Itoa(len(z))
	}
	order := slices.SortedFunc(maps.Keys(z), func(x, y string) int {
		return cmp.Or(cmp.Compare(z[x], z[y]), cmp.Compare(x, y))
	})
	if a[0] == "ZRANGE" {
		return fmt.Sprint(order)
	}
	if i := slices.Index(order, a[2]); i >= 0 { // ZRANK
		return strconv.Itoa(i)
	}
	return "(nil)"
}

// random returns a command on a few keys, so that they meet, of any kind.
func random(r *rand.Rand) []string {
	pick := func(of ...string) string { return of[r.IntN(len(of))] }
	key, other := "k"+strconv.Itoa(r.IntN(8)), "k"+strconv.Itoa(r.IntN(8))
	v, n := "v"+strconv.Itoa(r.IntN(20)), strconv.Itoa(r.IntN(9))
	all := [][]string{
		{"DEL", key}, {"EXISTS", key}, {"TYPE", key}, {"RENAME", key, other}, {"COPY", key, other},
		{"SET", key, n}, {"GET", key}, {"APPEND", key, n}, {"STRLEN", key}, {"SETRANGE", key, n, v}, {"INCR", key},
		{pick("LPUSH", "RPUSH"), key, v}, {pick("LPUSH", "RPUSH"), key, v}, {pick("LPOP", "RPOP"), key},
		{"LLEN", key}, {"LRANGE", key, "0", "-1"}, {"LREM", key, "0", v}, {"LTRIM", key, n, "-1"}, {"LINSERT", key, "BEFORE", v, n},
		{"HSET", key, v, n}, {"HSET", key, v, n}, {"HDEL", key, v}, {"HGET", key, v}, {"HLEN", key},
		{"SADD", key, v}, {"SADD", key, v}, {"SREM", key, v}, {"SISMEMBER", key, v}, {"SCARD", key},
		{pick("SINTER", "SUNION", "SDIFF"), key, other},
		{"ZADD", key, n, v}, {"ZADD", key, n, v}, {"ZREM", key, v}, {"ZCARD", key}, {"ZRANK", key, v}, {"ZRANGE", key, "0", "-1"},
	}
	return all[r.IntN(len(all))]
}

// do runs a command and returns what it answers, as text.
func (x *Call) do(words ...string) string {
	x.Args, x.Out, x.NoBlock = nil, nil, true
	for _, w := range words {
		x.Args = append(x.Args, []byte(w))
	}
	x.Run(Lookup(x.Args[0]))
	v, err := resp.Parse(x.Out)
	if err != nil {
		return fmt.Sprintf("%q: %v", x.Out, err)
	}
	return show(words[0], v)
}

// show gives a reply as text; the elements of sets are sorted.
func show(command string, v resp.Value) string {
	switch v.Kind {
	case '_':
		return "(nil)"
	case '-':
		return "(error) " + string(v.Str)
	case ':':
		return strconv.FormatInt(v.Int, 10)
	case '*', '~':
		var out []string
		for _, e := range v.Elems {
			out = append(out, show("", e))
		}
		if command[0] == 'S' {
			slices.Sort(out)
		}
		return fmt.Sprint(out)
	}
	return string(v.Str)
}
