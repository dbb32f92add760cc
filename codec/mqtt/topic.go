package mqtt

import (
	"bytes"
	"unicode/utf8"
)

// CheckTopic returns nil if name may be the topic name of a PUBLISH: 1 to 65,535 bytes of UTF-8
// without control characters and wildcards (section 4.7.1), and otherwise an *Error with the code
// MalformedPacket.
func CheckTopic(name []byte) error {
	if err := checkText(name, "the topic name"); err != nil {
		return err
	}
	if len(name) == 0 || bytes.ContainsAny(name, "+#") {
		return malformed("the topic name is empty or has a wildcard")
	}
	return nil
}

// CheckFilter returns nil if filter may be the topic filter of a subscription: 1 to 65,535 bytes of
// UTF-8 without control characters, "+" alone in its level, "#" alone in the last (section 4.7.1), and after
// "$share/" a name without wildcards and a filter (section 4.8.2). Otherwise it returns an *Error
// with the code TopicFilterInvalid, or MalformedPacket for bytes that are not text.
//
// Version 3.1.1 has no shared subscriptions; a server that offers them there, as most do, treats the
// two versions alike.
func CheckFilter(filter []byte) error {
	if err := checkText(filter, "the topic filter"); err != nil {
		return err
	}
	invalid := func(text string) error { return &Error{TopicFilterInvalid, text} }
	if bytes.HasPrefix(filter, sharePrefix) {
		group, rest, ok := bytes.Cut(filter[len(sharePrefix):], slash)
		if !ok || len(group) == 0 || bytes.ContainsAny(group, "+#") {
			return invalid("a shared subscription is $share/, a name without wildcards, / and a filter")
		}
		filter = rest
	}
	if len(filter) == 0 {
		return invalid("the topic filter is empty")
	}
	for level, rest, more := []byte(nil), filter, true; more; {
		level, rest, more = bytes.Cut(rest, slash)
		if len(level) > 1 && bytes.ContainsAny(level, "+#") || more && len(level) == 1 && level[0] == '#' {
			return invalid("a wildcard must be alone in its level, and # in the last one")
		}
	}
	return nil
}

var (
	slash       = []byte("/")
	sharePrefix = []byte("$share/")
)

// Shared splits the filter of a shared subscription into the name of its group and the filter of
// topics. ok is false for any other filter, which it returns whole. The filter must have passed
// CheckFilter.
func Shared(filter []byte) (group, topics []byte, ok bool) {
	rest, ok := bytes.CutPrefix(filter, sharePrefix)
	if !ok {
		return nil, filter, false
	}
	return bytes.Cut(rest, slash)
}

// Match reports whether topic is one that filter selects (section 4.7). Wildcards at the start of a
// filter do not select topics that begin with "$". Both must have passed their checks; of a shared
// subscription it takes what Shared returns as topics.
func Match(filter, topic []byte) bool {
	if topic[0] == '$' && (filter[0] == '+' || filter[0] == '#') {
		return false
	}
	for {
		level, filters, moreFilter := bytes.Cut(filter, slash)
		if len(level) == 1 && level[0] == '#' {
			return true
		}
		name, names, moreTopic := bytes.Cut(topic, slash)
		if (len(level) != 1 || level[0] != '+') && !bytes.Equal(level, name) {
			return false
		}
		if !moreTopic {
			return !moreFilter || string(filters) == "#" // "a/#" selects "a", too
		}
		if !moreFilter {
			return false
		}
		filter, topic = filters, names
	}
}

// checkText checks a UTF-8 encoded string [MQTT-1.5.4-1, MQTT-1.5.4-2]. Control characters, which
// section 1.5.4 lets a receiver refuse, are refused: texts get into logs.
func checkText(s []byte, what string) error {
	if len(s) > 65535 {
		return malformed("%s has %d bytes; the limit is 65535", what, len(s))
	}
	for i, c := range s {
		if c < 0x20 || c == 0x7F || c == 0xC2 && i+1 < len(s) && s[i+1] < 0xA0 { // U+0080 to U+009F
			return malformed("%s contains a control character", what)
		}
	}
	if !utf8.Valid(s) {
		return malformed("%s is not UTF-8", what)
	}
	return nil
}
