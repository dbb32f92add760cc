package main

import (
	"encoding/binary"
	"errors"
	"math"
	"strings"
	"time"

	"github.com/miekg/dns"
)

// What a hit of the cache needs is read from the wire here, without unpacking messages: a header, a
// question, the places of TTLs. Everything else is left to miekg/dns.

const (
	headerLen = 12
	optLen    = 11
	// minSize is what a client takes that does not say more. udpSize is what we say, and send at
	// most, as more may be sent in fragments, which get lost and are easy to forge.
	minSize = 512
	udpSize = 1232

	// maxName is how long a name is at most (RFC 1035, section 2.3.4). What is kept for a question is
	// no more.
	maxName = 255

	// maxTTL is for how long an answer is kept at most (RFC 8767, section 4).
	maxTTL = 7 * 24 * time.Hour
)

var errMessage = errors.New("not a DNS message that can be answered")

// A query is what a client asks, as far as the cache is concerned.
type query struct {
	id       uint16
	question []byte // as the client wrote it: a name, a type, a class
	key      string // the question in lower case, and the bits that change the answer
	flags    uint16
	edns     bool
	size     int // the longest answer
}

// header bits
const (
	bitQR, bitTC, bitRD, bitRA, bitCD = 1 << 15, 1 << 9, 1 << 8, 1 << 7, 1 << 4
	maskOpcode                        = 15 << 11
)

// parseQuery reads a query. The slices in it are of msg.
func parseQuery(msg []byte, key []byte) (q query, newKey []byte, err error) {
	if len(msg) < headerLen {
		return q, key, errMessage
	}
	q.id, q.flags = binary.BigEndian.Uint16(msg), binary.BigEndian.Uint16(msg[2:])
	if q.flags&(bitQR|maskOpcode) != 0 || binary.BigEndian.Uint16(msg[4:]) != 1 {
		return q, key, errMessage
	}
	end := skipName(msg, headerLen)
	if end < 0 || end > headerLen+maxName || end+4 > len(msg) || hasPointer(msg[headerLen:end]) {
		return q, key, errMessage
	}
	q.question, q.size = msg[headerLen:end+4], minSize
	var bits byte
	if q.flags&bitCD != 0 {
		bits = 1
	}
	if opt := msg[end+4:]; binary.BigEndian.Uint16(msg[10:]) > 0 && len(opt) >= optLen && opt[0] == 0 &&
		binary.BigEndian.Uint16(opt[1:]) == dns.TypeOPT {
		q.edns = true
		q.size = min(max(minSize, int(binary.BigEndian.Uint16(opt[3:]))), udpSize)
		bits |= opt[7] >> 7 << 1 // DO
	}
	key = append(key[:0], q.question...)
	for i, c := range key[:len(key)-4] {
		if 'A' <= c && c <= 'Z' {
			key[i] = c | 0x20
		}
	}
	return q, append(key, bits), nil
}

// skipName returns where a name ends, or -1.
func skipName(msg []byte, at int) int {
	for at < len(msg) {
		switch n := int(msg[at]); {
		case n == 0:
			return at + 1
		case n >= 0xc0:
			return at + 2
		case n >= 0x40:
			return -1
		default:
			at += 1 + n
		}
	}
	return -1
}

// hasPointer reports whether a name refers to another place of its message, as a question's has no
// reason to.
func hasPointer(name []byte) bool {
	for at := 0; at < len(name); at += 1 + int(name[at]) {
		if name[at] >= 0xc0 {
			return true
		}
	}
	return false
}

// An answer is one from upstream, in wire form without its OPT record, and where its TTLs are.
type answer struct {
	msg  []byte
	ttls []int
	ttl  time.Duration // how long it may be used; 0: not at all
}

// parseAnswer checks an answer from upstream, and takes it apart.
func parseAnswer(msg []byte, question []byte) (a answer, err error) {
	var m dns.Msg
	if err := m.Unpack(msg); err != nil {
		return a, err
	}
	if !m.Response || len(m.Question) != 1 {
		return a, errMessage
	}
	a.ttl = usable(&m)
	m.Extra = withoutOPT(m.Extra)
	m.Compress = true
	if a.msg, err = m.Pack(); err != nil {
		return a, err
	}
	end := skipName(a.msg, headerLen)
	if end < 0 || !strings.EqualFold(string(a.msg[headerLen:end]), string(question[:len(question)-4])) ||
		string(a.msg[end:end+4]) != string(question[len(question)-4:]) {
		return a, errMessage
	}
	at := end + 4
	for range len(m.Answer) + len(m.Ns) + len(m.Extra) {
		if at = skipName(a.msg, at); at < 0 || at+10 > len(a.msg) {
			return a, errMessage
		}
		a.ttls = append(a.ttls, at+4)
		at += 10 + int(binary.BigEndian.Uint16(a.msg[at+8:]))
	}
	return a, nil
}

func withoutOPT(rrs []dns.RR) (rest []dns.RR) {
	for _, rr := range rrs {
		if rr.Header().Rrtype != dns.TypeOPT {
			rest = append(rest, rr)
		}
	}
	return rest
}

// usable returns for how long an answer may be given again: as long as its shortest TTL says. What
// says that there is nothing, also at the end of a chain of CNAMEs, has an SOA record among its
// authorities, and may be used for as long as that says (RFC 2308); without one it is not kept.
func usable(m *dns.Msg) time.Duration {
	if m.Truncated || m.Rcode != dns.RcodeSuccess && m.Rcode != dns.RcodeNameError {
		return 0
	}
	least, hasSOA := uint32(math.MaxUint32), false
	for _, rr := range m.Answer {
		least = min(least, ttlOf(rr))
	}
	for _, rr := range m.Ns {
		least = min(least, ttlOf(rr))
		if soa, ok := rr.(*dns.SOA); ok {
			hasSOA, least = true, min(least, soa.Minttl)
		}
	}
	if !hasSOA && (len(m.Answer) == 0 || m.Rcode == dns.RcodeNameError) {
		return 0
	}
	return min(time.Duration(least)*time.Second, maxTTL)
}

// ttlOf returns a record's TTL: one with the first bit set means 0 (RFC 2181, section 8).
func ttlOf(rr dns.RR) uint32 {
	if ttl := rr.Header().Ttl; ttl <= math.MaxInt32 {
		return ttl
	}
	return 0
}

// appendAnswer appends a to dst as the answer to q, after it has been in the cache for age. A stale
// one gets a TTL of its own.
func appendAnswer(dst []byte, a *answer, q *query, age time.Duration, stale uint32) []byte {
	begin := len(dst)
	dst = append(dst, a.msg...)
	m := dst[begin:]
	binary.BigEndian.PutUint16(m, q.id)
	flags := binary.BigEndian.Uint16(m[2:])&^(bitRD|bitCD) | q.flags&(bitRD|bitCD) | bitRA
	binary.BigEndian.PutUint16(m[2:], flags)
	copy(m[headerLen:], q.question)
	gone := uint32(age / time.Second)
	for _, at := range a.ttls {
		ttl := binary.BigEndian.Uint32(m[at:])
		if ttl -= min(ttl, gone); stale > 0 {
			ttl = stale
		}
		binary.BigEndian.PutUint32(m[at:], ttl)
	}
	if q.edns {
		dst = appendOPT(dst, begin, q)
	}
	return dst
}

// appendOPT appends what every answer to EDNS has.
func appendOPT(dst []byte, begin int, q *query) []byte {
	n := binary.BigEndian.Uint16(dst[begin+10:])
	binary.BigEndian.PutUint16(dst[begin+10:], n+1)
	var do byte
	if len(q.key) > 0 && q.key[len(q.key)-1]&2 != 0 {
		do = 0x80
	}
	return append(dst, 0, 0, byte(dns.TypeOPT), udpSize>>8, udpSize&0xff, 0, 0, do, 0, 0, 0)
}

// appendEmpty appends an answer without records: a failure, or one that is too long and must be
// asked for by TCP.
func appendEmpty(dst []byte, q *query, rcode int, truncated bool) []byte {
	begin := len(dst)
	flags := uint16(bitQR|bitRA) | q.flags&(bitRD|bitCD) | uint16(rcode)
	if truncated {
		flags |= bitTC
	}
	dst = binary.BigEndian.AppendUint16(dst, q.id)
	dst = binary.BigEndian.AppendUint16(dst, flags)
	dst = append(dst, 0, 1, 0, 0, 0, 0, 0, 0)
	dst = append(dst, q.question...)
	if q.edns {
		dst = appendOPT(dst, begin, q)
	}
	return dst
}

// upstreamQuery returns what is asked upstream for q, with an id of its own.
func upstreamQuery(q *query, id uint16) []byte {
	b := binary.BigEndian.AppendUint16(nil, id)
	b = binary.BigEndian.AppendUint16(b, bitRD|q.flags&bitCD)
	b = append(b, 0, 1, 0, 0, 0, 0, 0, 0)
	b = append(b, q.question...)
	return appendOPT(b, 0, q)
}
