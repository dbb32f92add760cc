package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"time"

	"github.com/miekg/dns"
)

// What a hit of the cache needs is read from the wire here, without unpacking messages: a header, a
// question, the places of TTLs. Everything else is left to miekg/dns.

const (
	headerLen = 12
	// minSize is what a client takes that does not say more. udpSize is what we say, and send at
	// most, as more may be sent in fragments, which get lost and are easy to forge.
	minSize = 512
	udpSize = 1232

	// maxName is how long a name is at most (RFC 1035, section 2.3.4). What is kept for a question
	// is no more.
	maxName = 255

	// maxTTL is what an answer lives for at most, in seconds (RFC 8767, section 4).
	maxTTL = 7 * 24 * 60 * 60
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

// understandsAD reports whether the client may be told that an answer is authenticated: it has said
// so by AD or DO (RFC 6840, section 5.8).
func (q *query) understandsAD() bool {
	return q.flags&bitAD != 0 || len(q.key) > 0 && q.key[len(q.key)-1]&2 != 0
}

// header bits
const (
	bitQR, bitAA, bitTC, bitRD, bitRA, bitZ, bitAD, bitCD = 1 << 15, 1 << 10, 1 << 9, 1 << 8, 1 << 7, 1 << 6, 1 << 5, 1 << 4
	maskOpcode                                            = 15 << 11
)

// A refusal is a query that gets an answer without asking anybody: the code that it is answered
// with. Who is not answered at all asks again and again (RFC 8906).
type refusal int

func (r refusal) Error() string { return "a query that is refused: " + dns.RcodeToString[int(r)] }

// parseQuery reads a query. The slices in it are of msg. The error is errMessage for what must not
// be answered, as it is an answer itself or has no id, or else a refusal.
func parseQuery(msg []byte, key []byte) (q query, newKey []byte, err error) {
	if len(msg) < headerLen {
		return q, key, errMessage
	}
	q.id, q.flags = binary.BigEndian.Uint16(msg), binary.BigEndian.Uint16(msg[2:])
	q.size = minSize
	switch {
	case q.flags&bitQR != 0:
		return q, key, errMessage
	case q.flags&maskOpcode != 0:
		return q, key, refusal(dns.RcodeNotImplemented)
	case binary.BigEndian.Uint16(msg[4:]) != 1: // RFC 9619
		return q, key, refusal(dns.RcodeFormatError)
	}
	end := skipName(msg, headerLen)
	if end < 0 || end > headerLen+maxName || end+4 > len(msg) || hasPointer(msg[headerLen:end]) {
		return q, key, refusal(dns.RcodeFormatError)
	}
	q.question = msg[headerLen : end+4]
	opt, ok := findOPT(msg, end+4)
	if !ok {
		return q, key, refusal(dns.RcodeFormatError)
	}
	var bits byte
	if q.flags&bitCD != 0 {
		bits = 1
	}
	if q.flags&bitAD != 0 { // the client understands AD in the answer (RFC 6840, section 5.7)
		bits |= 4
	}
	if opt != nil {
		q.edns = true
		q.size = min(max(minSize, int(binary.BigEndian.Uint16(opt[3:]))), udpSize)
		bits |= opt[7] >> 7 << 1 // DO
		if opt[6] != 0 {         // a version that is not ours (RFC 6891, section 6.1.3)
			return q, key, refusal(dns.RcodeBadVers)
		}
	}
	if code := refusedType(binary.BigEndian.Uint16(msg[end:])); code != dns.RcodeSuccess {
		return q, key, refusal(code)
	}
	key = append(key[:0], q.question...)
	for i, c := range key[:len(key)-4] {
		if 'A' <= c && c <= 'Z' {
			key[i] = c | 0x20
		}
	}
	return q, append(key, bits), nil
}

// refusedType returns what a type is refused with that no answer has: zones are not to be had from
// a forwarder, and of what is no data at all (RFC 6895, section 3.1; RFC 9824, section 3.5) a cache
// can keep nothing.
func refusedType(qtype uint16) (code int) {
	switch {
	case qtype == dns.TypeAXFR || qtype == dns.TypeIXFR:
		return dns.RcodeRefused
	case qtype == dns.TypeMAILA || qtype == dns.TypeMAILB:
		return dns.RcodeNotImplemented
	case qtype == dns.TypeNone || qtype == dns.TypeOPT || 128 <= qtype && qtype < dns.TypeIXFR:
		return dns.RcodeFormatError
	}
	return dns.RcodeSuccess
}

// answers reports whether msg is an answer to a question. Who has understood nothing of it may
// leave the question out, and say just that; as only the id says whom it is for, nothing else is
// taken of it.
func answers(msg, question []byte) bool {
	if len(msg) < headerLen || msg[2]&(bitQR>>8) == 0 {
		return false
	}
	switch binary.BigEndian.Uint16(msg[4:]) {
	case 0:
		code := msg[3] & 15
		return (code == dns.RcodeFormatError || code == dns.RcodeNotImplemented) && !isCut(msg)
	case 1:
		end := headerLen + len(question)
		return end <= len(msg) && sameQuestion(msg[headerLen:end], question)
	}
	return false
}

// sameQuestion reports whether two questions, in wire form, differ in nothing but case.
func sameQuestion(a, b []byte) bool {
	if len(a) != len(b) {
		return false
	}
	name := len(a) - 4
	return bytes.EqualFold(a[:name], b[:name]) && bytes.Equal(a[name:], b[name:])
}

// isBare reports whether a message has no question.
func isBare(msg []byte) bool { return len(msg) >= headerLen && binary.BigEndian.Uint16(msg[4:]) == 0 }

// isCut reports whether a message says that it was too long for its transport.
func isCut(msg []byte) bool { return msg[2]&(bitTC>>8) != 0 }

// knowsNoEDNS reports whether an answer is that of a server which does not know EDNS (RFC 6891,
// section 7): it has not understood the query, and has no OPT record itself.
func knowsNoEDNS(msg []byte) bool {
	return msg[3]&15 == dns.RcodeFormatError && binary.BigEndian.Uint16(msg[10:]) == 0
}

// findOPT returns the OPT record among the records of a query, which begin at at, or nil. It
// reports false if the records are not what the header says, or an OPT record is not alone, not at
// its place, or of a name (RFC 6891, section 6.1.1).
func findOPT(msg []byte, at int) (opt []byte, ok bool) {
	before := int(binary.BigEndian.Uint16(msg[6:])) + int(binary.BigEndian.Uint16(msg[8:]))
	for i := range before + int(binary.BigEndian.Uint16(msg[10:])) {
		head := skipName(msg, at)
		if head < 0 || head+10 > len(msg) {
			return nil, false
		}
		end := head + 10 + int(binary.BigEndian.Uint16(msg[head+8:]))
		if end > len(msg) {
			return nil, false
		}
		if binary.BigEndian.Uint16(msg[head:]) == dns.TypeOPT {
			if i < before || opt != nil || head != at+1 {
				return nil, false
			}
			opt = msg[at:end]
		}
		at = end
	}
	return opt, true
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
	gone bool          // there is no such name, whatever type one asks for
}

func (a *answer) rcode() int { return int(a.msg[3] & 15) }

// isFailure reports whether an answer neither has what was asked for nor says that it is not there.
func (a *answer) isFailure() bool {
	return a.rcode() != dns.RcodeSuccess && a.rcode() != dns.RcodeNameError
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
	a.gone = m.Rcode == dns.RcodeNameError && len(m.Answer) == 0 // otherwise it is of a CNAME's target
	m.Extra = withoutOPT(m.Extra)
	m.Compress = true
	if a.msg, err = m.Pack(); err != nil {
		return a, err
	}
	end := skipName(a.msg, headerLen)
	if end < 0 || !sameQuestion(a.msg[headerLen:end+4], question) {
		return a, errMessage
	}
	at := end + 4
	for range len(m.Answer) + len(m.Ns) + len(m.Extra) {
		if at = skipName(a.msg, at); at < 0 || at+10 > len(a.msg) {
			return a, errMessage
		}
		a.ttls = append(a.ttls, at+4)
		ttl := binary.BigEndian.Uint32(a.msg[at+4:])
		binary.BigEndian.PutUint32(a.msg[at+4:], sane(ttl))
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
	least, hasSOA := uint32(maxTTL), false
	for _, rr := range m.Answer {
		least = min(least, sane(rr.Header().Ttl))
	}
	for _, rr := range m.Ns {
		least = min(least, sane(rr.Header().Ttl))
		if soa, ok := rr.(*dns.SOA); ok {
			hasSOA, least = true, min(least, sane(soa.Minttl))
		}
	}
	if !hasSOA && (len(m.Answer) == 0 || m.Rcode == dns.RcodeNameError) {
		return 0
	}
	return time.Duration(least) * time.Second
}

// sane returns the TTL that is meant by one: 0 if its first bit is set (RFC 2181, section 8), and
// no more than maxTTL.
func sane(ttl uint32) uint32 {
	if ttl > math.MaxInt32 {
		return 0
	}
	return min(ttl, maxTTL)
}

// appendAnswer appends a to dst as the answer to q, after it has been in the cache for age. A stale
// one gets a TTL of its own.
func appendAnswer(dst []byte, a *answer, q *query, age time.Duration, stale uint32) []byte {
	begin := len(dst)
	dst = append(dst, a.msg...)
	m := dst[begin:]
	binary.BigEndian.PutUint16(m, q.id)
	flags := binary.BigEndian.Uint16(m[2:])&^(bitAA|bitRD|bitZ|bitCD) | q.flags&(bitRD|bitCD) | bitRA
	if !q.understandsAD() {
		flags &^= bitAD
	}
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
		dst = appendOPT(dst, begin, q, 0)
	}
	return dst
}

// appendOPT appends what every answer to EDNS has, and what is above the four bits of the header's
// code.
func appendOPT(dst []byte, begin int, q *query, code byte) []byte {
	n := binary.BigEndian.Uint16(dst[begin+10:])
	binary.BigEndian.PutUint16(dst[begin+10:], n+1)
	var do byte
	if len(q.key) > 0 && q.key[len(q.key)-1]&2 != 0 {
		do = 0x80
	}
	return append(dst, 0, 0, byte(dns.TypeOPT), udpSize>>8, udpSize&0xff, code, 0, do, 0, 0, 0)
}

// appendEmpty appends an answer without records: a failure, or one that is too long and must be
// asked for by TCP. Without a question that could be read it has none either.
func appendEmpty(dst []byte, q *query, rcode int, truncated bool) []byte {
	begin := len(dst)
	flags := uint16(bitQR|bitRA) | q.flags&(maskOpcode|bitRD|bitCD) | uint16(rcode&15)
	if truncated {
		flags |= bitTC
	}
	dst = binary.BigEndian.AppendUint16(dst, q.id)
	dst = binary.BigEndian.AppendUint16(dst, flags)
	dst = append(dst, 0, byte(min(len(q.question), 1)), 0, 0, 0, 0, 0, 0)
	dst = append(dst, q.question...)
	if q.edns {
		dst = appendOPT(dst, begin, q, byte(rcode>>4))
	}
	return dst
}

// upstreamQuery returns what is asked upstream for q, with an id of its own, and its question in a
// case of its own. plain leaves out EDNS.
func upstreamQuery(q *query, question []byte, id uint16, plain bool) []byte {
	b := binary.BigEndian.AppendUint16(nil, id)
	b = binary.BigEndian.AppendUint16(b, bitRD|q.flags&(bitCD|bitAD))
	b = append(b, 0, 1, 0, 0, 0, 0, 0, 0)
	b = append(b, question...)
	if plain {
		return b
	}
	return appendOPT(b, 0, q, 0)
}
