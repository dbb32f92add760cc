package mqtt

import (
	"cmp"
	"encoding/binary"
	"iter"
)

// open checks the fixed header of a frame, which must be one packet of type t, and returns a reader
// of the rest.
func open(frame []byte, v Version, t Type) reader {
	var r reader
	switch {
	case len(frame) < 2 || TypeOf(frame) != t:
		r.fail(protocolError("a frame that is no %v", t))
		return r
	case v != V311 && v != V5:
		r.fail(&Error{UnsupportedProtocolVersion, v.String()})
		return r
	}
	r.data = frame[1:]
	r.fail(checkFlags(frame[0]))
	var length int
	if v == V5 {
		length = r.uvarint()
	} else if l, n := uvarint(r.data); n > 0 {
		length, r.data = l, r.data[n:]
	} else {
		r.fail(errShort)
	}
	if r.err == nil && length != len(r.data) {
		r.fail(malformed("%v of %d bytes in a frame of %d", t, length, len(r.data)))
	}
	return r
}

// begin appends the fixed header of a packet whose rest has so many bytes.
func begin(dst []byte, t Type, flags byte, rest int) ([]byte, error) {
	if rest > maxRemaining {
		return dst, &Error{PacketTooLarge, "the packet is longer than its length field can say"}
	}
	return appendUvarint(append(dst, byte(t)<<4|flags), rest), nil
}

// size returns how many bytes properties take, with their length.
func (p Properties) size(v Version) int {
	if v != V5 {
		return 0
	}
	return uvarintSize(len(p)) + len(p)
}

// append appends properties with their length. The size has been counted and checked before.
func (p Properties) append(dst []byte, v Version) []byte {
	if v != V5 {
		return dst
	}
	return append(appendUvarint(dst, len(p)), p...)
}

// checkFor checks the properties that a packet of type t is to be sent with.
func (p Properties) checkFor(v Version, t Type) error {
	if v != V5 || len(p) == 0 {
		return nil
	}
	if len(p) > maxRemaining {
		return &Error{PacketTooLarge, "the properties are longer than their length field can say"}
	}
	return p.check(t)
}

// Publish is the PUBLISH packet: a message.
type Publish struct {
	Dup    bool // QoS 1 and 2: it may have been sent before
	QoS    byte // 0, 1 or 2
	Retain bool
	// Topic is the topic name. In version 5 it is empty if the property TopicAlias replaces it.
	Topic      []byte
	ID         uint16 // the packet identifier; with QoS 0 there is none
	Properties Properties
	Payload    []byte
}

// ParsePublish parses a PUBLISH. The frame is borrowed.
func ParsePublish(frame []byte, v Version) (Publish, error) {
	r := open(frame, v, PUBLISH)
	if r.err != nil {
		return Publish{}, r.err
	}
	p := Publish{Dup: frame[0]&8 != 0, QoS: frame[0] >> 1 & 3, Retain: frame[0]&1 != 0, Topic: r.bytes()}
	if p.QoS > 0 {
		p.ID = r.packetID(PUBLISH)
	}
	p.Properties = r.properties(v, PUBLISH)
	p.Payload = r.data
	if r.err == nil {
		r.fail(p.checkTopic(v))
	}
	return p, r.err
}

func (p *Publish) checkTopic(v Version) error {
	if v == V5 && len(p.Properties) > 0 {
		if alias, ok := p.Properties.Number(TopicAlias); ok {
			if alias == 0 { // [MQTT-3.3.2-8]
				return &Error{TopicAliasInvalid, "topic alias 0"}
			}
			if len(p.Topic) == 0 {
				return nil
			}
		}
	}
	if len(p.Topic) == 0 && v == V5 {
		return protocolError("PUBLISH without a topic name and without a topic alias")
	}
	return CheckTopic(p.Topic)
}

// Append appends the packet. If the peer would refuse the packet, it returns dst unchanged and an
// *Error.
func (p *Publish) Append(dst []byte, v Version) ([]byte, error) {
	flags := p.QoS << 1
	if p.Dup {
		flags |= 8
	}
	if p.Retain {
		flags |= 1
	}
	if err := checkFlags(byte(PUBLISH)<<4 | flags); err != nil || p.QoS > 2 {
		return dst, malformed("PUBLISH with QoS %d, DUP %v", p.QoS, p.Dup)
	}
	if err := p.Properties.checkFor(v, PUBLISH); err != nil {
		return dst, err
	}
	if err := p.checkTopic(v); err != nil {
		return dst, err
	}
	size := 2 + len(p.Topic) + p.Properties.size(v) + len(p.Payload)
	if p.QoS > 0 {
		size += 2
		if p.ID == 0 {
			return dst, protocolError("PUBLISH with QoS %d and packet identifier 0", p.QoS)
		}
	}
	out, err := begin(dst, PUBLISH, flags, size)
	if err != nil {
		return dst, err
	}
	out = appendString(out, p.Topic)
	if p.QoS > 0 {
		out = binary.BigEndian.AppendUint16(out, p.ID)
	}
	return append(p.Properties.append(out, v), p.Payload...), nil
}

// Ack is one of the packets PUBACK, PUBREC, PUBREL and PUBCOMP.
type Ack struct {
	Type       Type
	ID         uint16     // the packet identifier of the PUBLISH
	Code       ReasonCode // version 5
	Properties Properties // version 5
}

// ParseAck parses a PUBACK, PUBREC, PUBREL or PUBCOMP. The frame is borrowed.
func ParseAck(frame []byte, v Version) (Ack, error) {
	a := Ack{Type: PUBACK}
	if len(frame) > 0 && TypeOf(frame) > PUBACK && TypeOf(frame) <= PUBCOMP {
		a.Type = TypeOf(frame)
	}
	r := open(frame, v, a.Type)
	a.ID = r.packetID(a.Type)
	a.Code, a.Properties = r.result(v, a.Type)
	return a, r.end()
}

// result reads the reason code and the properties that end a packet of version 5: both may be
// missing, or the properties alone.
func (r *reader) result(v Version, t Type) (code ReasonCode, p Properties) {
	if v != V5 || len(r.data) == 0 {
		return 0, nil
	}
	code = ReasonCode(r.byte())
	r.fail(code.checkFor(v, t))
	if len(r.data) > 0 {
		p = r.properties(v, t)
	}
	return code, p
}

// appendResult appends a packet that begins with id, unless it is 0, and ends with a reason code and
// properties.
func appendResult(dst []byte, v Version, t Type, flags byte, id uint16, code ReasonCode, p Properties) ([]byte, error) {
	if err := cmp.Or(code.checkFor(v, t), p.checkFor(v, t)); err != nil {
		return dst, err
	}
	size := 0
	if id != 0 {
		size = 2
	}
	switch {
	case v != V5:
	case len(p) > 0:
		size += 1 + p.size(v)
	case code != 0:
		size++
	}
	out, err := begin(dst, t, flags, size)
	if err != nil {
		return dst, err
	}
	if id != 0 {
		out = binary.BigEndian.AppendUint16(out, id)
		size -= 2
	}
	if size > 0 {
		out = append(out, byte(code))
	}
	if size > 1 {
		out = p.append(out, v)
	}
	return out, nil
}

// Append appends the packet. If it fails, it returns dst unchanged and an *Error.
func (a *Ack) Append(dst []byte, v Version) ([]byte, error) {
	flags := byte(0)
	switch {
	case a.Type < PUBACK || a.Type > PUBCOMP:
		return dst, protocolError("%v as an Ack", a.Type)
	case a.ID == 0:
		return dst, protocolError("%v with packet identifier 0", a.Type)
	case a.Type == PUBREL:
		flags = 2
	}
	return appendResult(dst, v, a.Type, flags, a.ID, a.Code, a.Properties)
}

// Subscription is one entry of a SUBSCRIBE.
type Subscription struct {
	Filter []byte
	QoS    byte // the maximum: 0, 1 or 2
	// NoLocal, RetainAsPublished and RetainHandling exist in version 5. RetainHandling says when
	// retained messages are sent: 0 always, 1 for a new subscription, 2 never.
	NoLocal, RetainAsPublished bool
	RetainHandling             byte
}

func (s Subscription) options(v Version) byte {
	o := s.QoS
	if v == V5 {
		if s.NoLocal {
			o |= 4
		}
		if s.RetainAsPublished {
			o |= 8
		}
		o |= s.RetainHandling << 4
	}
	return o
}

// Subscribe is the SUBSCRIBE packet.
type Subscribe struct {
	ID         uint16
	Properties Properties
	entries    []byte
}

// ParseSubscribe parses a SUBSCRIBE. The frame is borrowed. It does not check whether the filters are
// valid, because a server refuses a single one in its SUBACK: see CheckFilter.
func ParseSubscribe(frame []byte, v Version) (Subscribe, error) {
	r := open(frame, v, SUBSCRIBE)
	s := Subscribe{ID: r.packetID(SUBSCRIBE), Properties: r.properties(v, SUBSCRIBE)}
	s.entries = r.data
	if r.err == nil && len(r.data) == 0 { // [MQTT-3.8.3-2]
		r.fail(protocolError("SUBSCRIBE without a topic filter"))
	}
	for len(r.data) > 0 {
		filter, options := r.filter(), r.byte()
		reserved := options & 0xC0
		if v != V5 {
			reserved = options & 0xFC
		}
		switch {
		case r.err != nil:
		case options&3 == 3 || options&0x30 == 0x30 || reserved != 0:
			r.fail(malformed("subscription options %08b", options))
		case v == V5 && options&4 != 0 && hasShare(filter): // [MQTT-3.8.3-4]
			r.fail(protocolError("no local on a shared subscription"))
		}
	}
	return s, r.err
}

func hasShare(filter []byte) bool { _, _, ok := Shared(filter); return ok }

// All iterates over the subscriptions in their order, which is that of the codes in the SUBACK.
func (s Subscribe) All() iter.Seq[Subscription] {
	return func(yield func(Subscription) bool) {
		for r := (reader{data: s.entries}); len(r.data) > 0; {
			filter, o := r.bytes(), r.byte()
			if !yield(Subscription{filter, o & 3, o&4 != 0, o&8 != 0, o >> 4 & 3}) {
				return
			}
		}
	}
}

// AppendSubscribe appends a SUBSCRIBE with at least one subscription. If it fails, it returns dst
// unchanged and an *Error.
func AppendSubscribe(dst []byte, v Version, id uint16, p Properties, subscriptions ...Subscription) ([]byte, error) {
	size := 2 + p.size(v)
	for _, s := range subscriptions {
		if err := CheckFilter(s.Filter); err != nil {
			return dst, err
		}
		if s.QoS > 2 || s.RetainHandling > 2 || s.NoLocal && hasShare(s.Filter) {
			return dst, protocolError("subscription to %q with options %08b", s.Filter, s.options(v))
		}
		size += 2 + len(s.Filter) + 1
	}
	if id == 0 || len(subscriptions) == 0 {
		return dst, protocolError("SUBSCRIBE without a packet identifier, or without a topic filter")
	}
	if err := p.checkFor(v, SUBSCRIBE); err != nil {
		return dst, err
	}
	out, err := begin(dst, SUBSCRIBE, 2, size)
	if err != nil {
		return dst, err
	}
	out = p.append(binary.BigEndian.AppendUint16(out, id), v)
	for _, s := range subscriptions {
		out = append(appendString(out, s.Filter), s.options(v))
	}
	return out, nil
}

// Unsubscribe is the UNSUBSCRIBE packet.
type Unsubscribe struct {
	ID         uint16
	Properties Properties
	filters    []byte
}

// ParseUnsubscribe parses an UNSUBSCRIBE. The frame is borrowed. Like ParseSubscribe, it does not
// check whether the filters are valid.
func ParseUnsubscribe(frame []byte, v Version) (Unsubscribe, error) {
	r := open(frame, v, UNSUBSCRIBE)
	u := Unsubscribe{ID: r.packetID(UNSUBSCRIBE), Properties: r.properties(v, UNSUBSCRIBE)}
	u.filters = r.data
	if r.err == nil && len(r.data) == 0 { // [MQTT-3.10.3-2]
		r.fail(protocolError("UNSUBSCRIBE without a topic filter"))
	}
	for len(r.data) > 0 {
		r.filter()
	}
	return u, r.err
}

// All iterates over the topic filters in their order.
func (u Unsubscribe) All() iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for r := (reader{data: u.filters}); len(r.data) > 0; {
			if !yield(r.bytes()) {
				return
			}
		}
	}
}

// AppendUnsubscribe appends an UNSUBSCRIBE with at least one topic filter. If it fails, it returns
// dst unchanged and an *Error.
func AppendUnsubscribe(dst []byte, v Version, id uint16, p Properties, filters ...[]byte) ([]byte, error) {
	size := 2 + p.size(v)
	for _, f := range filters {
		if err := CheckFilter(f); err != nil {
			return dst, err
		}
		size += 2 + len(f)
	}
	if id == 0 || len(filters) == 0 {
		return dst, protocolError("UNSUBSCRIBE without a packet identifier, or without a topic filter")
	}
	if err := p.checkFor(v, UNSUBSCRIBE); err != nil {
		return dst, err
	}
	out, err := begin(dst, UNSUBSCRIBE, 2, size)
	if err != nil {
		return dst, err
	}
	out = p.append(binary.BigEndian.AppendUint16(out, id), v)
	for _, f := range filters {
		out = appendString(out, f)
	}
	return out, nil
}

// SubAck is the packet SUBACK or UNSUBACK.
type SubAck struct {
	Type       Type // SUBACK or UNSUBACK
	ID         uint16
	Properties Properties
	// Codes has a ReasonCode for each topic filter. The UNSUBACK of version 3.1.1 has none. In its
	// SUBACK all failures are 0x80, UnspecifiedError.
	Codes []byte
}

// ParseSubAck parses a SUBACK or UNSUBACK. The frame is borrowed.
func ParseSubAck(frame []byte, v Version) (SubAck, error) {
	a := SubAck{Type: SUBACK}
	if len(frame) > 0 && TypeOf(frame) == UNSUBACK {
		a.Type = UNSUBACK
	}
	r := open(frame, v, a.Type)
	a.ID = r.packetID(a.Type)
	a.Properties = r.properties(v, a.Type)
	if a.Type == UNSUBACK && v != V5 {
		return a, r.end()
	}
	if a.Codes = r.data; r.err == nil && len(a.Codes) == 0 {
		r.fail(malformed("%v without a reason code", a.Type))
	}
	for _, code := range a.Codes {
		if v != V5 && code > 2 && code != byte(UnspecifiedError) { // [MQTT-3.9.3-2] of version 3.1.1
			r.fail(malformed("SUBACK with return code %d", code))
		}
		r.fail(ReasonCode(code).checkFor(v, a.Type))
	}
	return a, r.err
}

// Append appends the packet. If it fails, it returns dst unchanged and an *Error.
func (a *SubAck) Append(dst []byte, v Version) ([]byte, error) {
	bare := v != V5 && a.Type == UNSUBACK
	if a.Type != SUBACK && a.Type != UNSUBACK || a.ID == 0 || len(a.Codes) == 0 && !bare {
		return dst, protocolError("%v with packet identifier %d and %d codes", a.Type, a.ID, len(a.Codes))
	}
	if err := a.Properties.checkFor(v, a.Type); err != nil {
		return dst, err
	}
	codes := a.Codes
	if bare {
		codes = nil
	}
	for _, code := range codes {
		if err := ReasonCode(code).checkFor(v, a.Type); err != nil {
			return dst, err
		}
	}
	out, err := begin(dst, a.Type, 0, 2+a.Properties.size(v)+len(codes))
	if err != nil {
		return dst, err
	}
	out = a.Properties.append(binary.BigEndian.AppendUint16(out, a.ID), v)
	for _, code := range codes {
		if v != V5 && code > 2 {
			code = byte(UnspecifiedError)
		}
		out = append(out, code)
	}
	return out, nil
}

// Disconnect is the DISCONNECT packet.
type Disconnect struct {
	Code       ReasonCode // version 5
	Properties Properties // version 5
}

// ParseDisconnect parses a DISCONNECT. The frame is borrowed.
func ParseDisconnect(frame []byte, v Version) (Disconnect, error) {
	r := open(frame, v, DISCONNECT)
	var d Disconnect
	d.Code, d.Properties = r.result(v, DISCONNECT)
	return d, r.end()
}

// Append appends the packet. If it fails, it returns dst unchanged and an *Error. In version 3.1.1
// only clients send it.
func (d *Disconnect) Append(dst []byte, v Version) ([]byte, error) {
	return appendResult(dst, v, DISCONNECT, 0, 0, d.Code, d.Properties)
}

// Auth is the AUTH packet of version 5.
type Auth struct {
	Code       ReasonCode // Success, ContinueAuthentication or ReAuthenticate
	Properties Properties
}

// ParseAuth parses an AUTH. The frame is borrowed.
func ParseAuth(frame []byte, v Version) (Auth, error) {
	r := open(frame, v, AUTH)
	var a Auth
	if a.Code, a.Properties = r.result(v, AUTH); r.err == nil {
		r.fail(a.check(v))
	}
	return a, r.end()
}

// Append appends the packet. If it fails, it returns dst unchanged and an *Error.
func (a *Auth) Append(dst []byte, v Version) ([]byte, error) {
	if err := a.check(v); err != nil {
		return dst, err
	}
	return appendResult(dst, v, AUTH, 0, 0, a.Code, a.Properties)
}

// check: only the shortest AUTH has no method (sections 3.15.2.1 and 3.15.2.2.2).
func (a *Auth) check(v Version) error {
	if v != V5 {
		return protocolError("AUTH in version %v", v)
	}
	if _, ok := a.Properties.Value(AuthenticationMethod); !ok && (a.Code != Success || len(a.Properties) > 0) {
		return protocolError("AUTH without an authentication method")
	}
	return nil
}

// CheckPing returns nil if the frame is a PINGREQ or PINGRESP of two bytes, and otherwise an *Error.
func CheckPing(frame []byte) error {
	t := PINGREQ
	if len(frame) > 0 && TypeOf(frame) == PINGRESP {
		t = PINGRESP
	}
	r := open(frame, V5, t)
	return r.end()
}

// AppendPing appends a PINGREQ or a PINGRESP.
func AppendPing(dst []byte, t Type) []byte { return append(dst, byte(t)<<4, 0) }
