package loopslog

import (
	"encoding/json"
	"log/slog"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// maxDepth is how deep groups are taken apart; what is within more is left as it is.
const maxDepth = 16

// A scanner reads JSON from left to right. Each method takes what it is named after from the start
// of rest, and reports whether that was there. Values share the memory of the line.
type scanner struct{ rest string }

// skip takes white space, and then one byte, if it is next.
func (s *scanner) skip(b byte) bool {
	s.rest = strings.TrimLeft(s.rest, " \t\r\n")
	if s.rest == "" || s.rest[0] != b {
		return false
	}
	s.rest = s.rest[1:]
	return true
}

// object appends the fields of an object.
func (s *scanner) object(to []slog.Attr, depth int) ([]slog.Attr, bool) {
	if !s.skip('{') {
		return to, false
	}
	if s.skip('}') {
		return to, true
	}
	for {
		key, ok := s.text()
		if !ok || !s.skip(':') {
			return to, false
		}
		value, ok := s.value(depth)
		if !ok {
			return to, false
		}
		to = append(to, slog.Attr{Key: key, Value: value})
		if s.skip('}') {
			return to, true
		}
		if !s.skip(',') {
			return to, false
		}
	}
}

func (s *scanner) value(depth int) (slog.Value, bool) {
	s.skip(0) // white space
	if s.rest == "" {
		return slog.Value{}, false
	}
	switch b := s.rest[0]; {
	case b == '"':
		text, ok := s.text()
		return slog.StringValue(text), ok
	case b == '{' && depth < maxDepth:
		fields, ok := s.object(nil, depth+1)
		return slog.GroupValue(fields...), ok
	case b == '{' || b == '[':
		return s.raw()
	}
	end := strings.IndexAny(s.rest, ",}] \t\r\n")
	if end < 0 {
		return slog.Value{}, false
	}
	word := s.rest[:end]
	s.rest = s.rest[end:]
	switch word {
	case "true", "false":
		return slog.BoolValue(word == "true"), true
	case "null":
		return slog.AnyValue(nil), true
	}
	if n, err := strconv.ParseInt(word, 10, 64); err == nil {
		return slog.Int64Value(n), true
	}
	if n, err := strconv.ParseUint(word, 10, 64); err == nil {
		return slog.Uint64Value(n), true
	}
	f, err := strconv.ParseFloat(word, 64)
	return slog.Float64Value(f), err == nil
}

// raw takes an array or an object as it is.
func (s *scanner) raw() (slog.Value, bool) {
	depth := 0
	for i := 0; i < len(s.rest); i++ {
		switch s.rest[i] {
		case '"':
			n := textLength(s.rest[i:])
			if n == 0 {
				return slog.Value{}, false
			}
			i += n - 1
		case '[', '{':
			depth++
		case ']', '}':
			if depth--; depth == 0 {
				all := s.rest[:i+1]
				s.rest = s.rest[i+1:]
				return slog.AnyValue(json.RawMessage(all)), json.Valid([]byte(all))
			}
		}
	}
	return slog.Value{}, false
}

// textLength returns the length of the string that data begins with, its quotes included, or 0.
func textLength(data string) int {
	for i := 1; i < len(data); i++ {
		switch data[i] {
		case '"':
			return i + 1
		case '\\':
			i++
		}
	}
	return 0
}

// text takes a string.
func (s *scanner) text() (string, bool) {
	s.skip(0)
	if s.rest == "" || s.rest[0] != '"' {
		return "", false
	}
	n := textLength(s.rest)
	if n == 0 {
		return "", false
	}
	quoted := s.rest[1 : n-1]
	s.rest = s.rest[n:]
	if strings.IndexByte(quoted, '\\') < 0 {
		return quoted, true
	}
	return unescape(quoted)
}

// unescape returns what stands between the quotes of a string (RFC 8259 section 7).
func unescape(quoted string) (string, bool) {
	out := make([]byte, 0, len(quoted))
	for {
		i := strings.IndexByte(quoted, '\\')
		if i < 0 {
			return string(append(out, quoted...)), true
		}
		if i+1 == len(quoted) {
			return "", false
		}
		out = append(out, quoted[:i]...)
		kind := quoted[i+1]
		quoted = quoted[i+2:]
		if kind == 'u' {
			r, n := escapedRune(quoted)
			if n == 0 {
				return "", false
			}
			out, quoted = utf8.AppendRune(out, r), quoted[n:]
			continue
		}
		at := strings.IndexByte(`"\/bfnrt`, kind)
		if at < 0 {
			return "", false
		}
		out = append(out, "\"\\/\b\f\n\r\t"[at])
	}
}

// escapedRune returns the character whose number data begins with, and the bytes it took: one half
// of a pair takes the other one along. 0 bytes: there is no number.
func escapedRune(data string) (r rune, n int) {
	first, ok := hex4(data)
	if !ok {
		return 0, 0
	}
	if utf16.IsSurrogate(first) {
		if rest, ok := strings.CutPrefix(data[4:], `\u`); ok {
			if second, ok := hex4(rest); ok && utf16.DecodeRune(first, second) != utf8.RuneError {
				return utf16.DecodeRune(first, second), 10
			}
		}
		return utf8.RuneError, 4
	}
	return first, 4
}

func hex4(data string) (rune, bool) {
	if len(data) < 4 {
		return 0, false
	}
	n, err := strconv.ParseUint(data[:4], 16, 16)
	return rune(n), err == nil
}
