package mqtt

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"iter"
	"math"
)

// PropertyID names a property of version 5 (section 2.2.2.2).
type PropertyID byte

// The properties. The comments give the type of the value.
const (
	PayloadFormat           PropertyID = 0x01 // number: 0 bytes, 1 UTF-8
	MessageExpiry           PropertyID = 0x02 // number: seconds
	ContentType             PropertyID = 0x03 // text
	ResponseTopic           PropertyID = 0x08 // text
	CorrelationData         PropertyID = 0x09 // bytes
	SubscriptionID          PropertyID = 0x0B // number: 1 to 268,435,455
	SessionExpiry           PropertyID = 0x11 // number: seconds; 0xFFFFFFFF: never
	AssignedClientID        PropertyID = 0x12 // text
	ServerKeepAlive         PropertyID = 0x13 // number: seconds
	AuthenticationMethod    PropertyID = 0x15 // text
	AuthenticationData      PropertyID = 0x16 // bytes
	RequestProblemInfo      PropertyID = 0x17 // number: 0 or 1
	WillDelay               PropertyID = 0x18 // number: seconds
	RequestResponseInfo     PropertyID = 0x19 // number: 0 or 1
	ResponseInfo            PropertyID = 0x1A // text
	ServerReference         PropertyID = 0x1C // text
	ReasonString            PropertyID = 0x1F // text
	ReceiveMaximum          PropertyID = 0x21 // number: 1 to 65,535
	TopicAliasMaximum       PropertyID = 0x22 // number
	TopicAlias              PropertyID = 0x23 // number: 1 to 65,535
	MaximumQoS              PropertyID = 0x24 // number: 0 or 1
	RetainAvailable         PropertyID = 0x25 // number: 0 or 1
	UserProperty            PropertyID = 0x26 // two texts, any number of times
	MaximumPacketSize       PropertyID = 0x27 // number: from 1
	WildcardAvailable       PropertyID = 0x28 // number: 0 or 1
	SubscriptionIDAvailable PropertyID = 0x29 // number: 0 or 1
	SharedAvailable         PropertyID = 0x2A // number: 0 or 1
)

// kind is how a property's value is encoded.
type kind byte

const (
	byteKind   kind = iota + 1 // one byte
	shortKind                  // two bytes
	longKind                   // four bytes
	varintKind                 // a variable byte integer
	textKind                   // a UTF-8 encoded string
	bytesKind                  // binary data
	pairKind                   // two strings
)

// inWill stands for the will properties of a CONNECT among the types of packets.
const inWill Type = 0

// property is what the table of section 2.2.2.2 says of a property: its kind, the packets that may
// have it (a bit for each Type), and the values that a number may have.
type property struct {
	name     string
	kind     kind
	packets  uint16
	min, max uint32
}

func in(types ...Type) (packets uint16) {
	for _, t := range types {
		packets |= 1 << t
	}
	return packets
}

var (
	inAny      = in(CONNECT, CONNACK, PUBLISH, PUBACK, PUBREC, PUBREL, PUBCOMP, SUBSCRIBE, SUBACK, UNSUBSCRIBE, UNSUBACK, DISCONNECT, AUTH, inWill)
	inAnswers  = in(CONNACK, PUBACK, PUBREC, PUBREL, PUBCOMP, SUBACK, UNSUBACK, DISCONNECT, AUTH)
	properties = [...]property{
		PayloadFormat:           {"payload format indicator", byteKind, in(PUBLISH, inWill), 0, 1},
		MessageExpiry:           {"message expiry interval", longKind, in(PUBLISH, inWill), 0, math.MaxUint32},
		ContentType:             {"content type", textKind, in(PUBLISH, inWill), 0, 0},
		ResponseTopic:           {"response topic", textKind, in(PUBLISH, inWill), 0, 0},
		CorrelationData:         {"correlation data", bytesKind, in(PUBLISH, inWill), 0, 0},
		SubscriptionID:          {"subscription identifier", varintKind, in(PUBLISH, SUBSCRIBE), 1, maxRemaining},
		SessionExpiry:           {"session expiry interval", longKind, in(CONNECT, CONNACK, DISCONNECT), 0, math.MaxUint32},
		AssignedClientID:        {"assigned client identifier", textKind, in(CONNACK), 0, 0},
		ServerKeepAlive:         {"server keep alive", shortKind, in(CONNACK), 0, 65535},
		AuthenticationMethod:    {"authentication method", textKind, in(CONNECT, CONNACK, AUTH), 0, 0},
		AuthenticationData:      {"authentication data", bytesKind, in(CONNECT, CONNACK, AUTH), 0, 0},
		RequestProblemInfo:      {"request problem information", byteKind, in(CONNECT), 0, 1},
		WillDelay:               {"will delay interval", longKind, in(inWill), 0, math.MaxUint32},
		RequestResponseInfo:     {"request response information", byteKind, in(CONNECT), 0, 1},
		ResponseInfo:            {"response information", textKind, in(CONNACK), 0, 0},
		ServerReference:         {"server reference", textKind, in(CONNACK, DISCONNECT), 0, 0},
		ReasonString:            {"reason string", textKind, inAnswers, 0, 0},
		ReceiveMaximum:          {"receive maximum", shortKind, in(CONNECT, CONNACK), 1, 65535},
		TopicAliasMaximum:       {"topic alias maximum", shortKind, in(CONNECT, CONNACK), 0, 65535},
		TopicAlias:              {"topic alias", shortKind, in(PUBLISH), 0, 65535}, // 0 is TopicAliasInvalid
		MaximumQoS:              {"maximum QoS", byteKind, in(CONNACK), 0, 1},
		RetainAvailable:         {"retain available", byteKind, in(CONNACK), 0, 1},
		UserProperty:            {"user property", pairKind, inAny, 0, 0},
		MaximumPacketSize:       {"maximum packet size", longKind, in(CONNECT, CONNACK), 1, math.MaxUint32},
		WildcardAvailable:       {"wildcard subscription available", byteKind, in(CONNACK), 0, 1},
		SubscriptionIDAvailable: {"subscription identifiers available", byteKind, in(CONNACK), 0, 1},
		SharedAvailable:         {"shared subscription available", byteKind, in(CONNACK), 0, 1},
	}
)

func (id PropertyID) info() property {
	if int(id) < len(properties) {
		return properties[id]
	}
	return property{}
}

// String returns the name as the standard has it.
func (id PropertyID) String() string {
	if name := id.info().name; name != "" {
		return name
	}
	return fmt.Sprintf("property 0x%02X", byte(id))
}

// Properties are the properties of a packet in their wire form, without the length before them. nil
// means none. Those of a parsed packet are borrowed from its frame and have been checked: the packet
// may have each of them, only user properties and the subscription identifiers of a PUBLISH occur
// more than once, and numbers are in their ranges.
//
// The Append methods make them:
//
//	var p mqtt.Properties
//	p = p.AppendNumber(mqtt.ReceiveMaximum, 100).AppendText(mqtt.ReasonString, "try later")
type Properties []byte

// Property is one of Properties. Its slices are borrowed from them.
type Property struct {
	ID     PropertyID
	Number uint32 // of a number
	Key    []byte // the first text of a user property
	Value  []byte // of a text or bytes; the second text of a user property
}

// All iterates over the properties in the order in which they were sent.
func (p Properties) All() iter.Seq[Property] {
	return func(yield func(Property) bool) {
		for rest := p; len(rest) > 0; {
			next, tail, err := nextProperty(rest)
			if err != nil || !yield(next) {
				return
			}
			rest = tail
		}
	}
}

// Number returns the value of a number that occurs once, and whether it is there.
func (p Properties) Number(id PropertyID) (value uint32, ok bool) {
	found, ok := p.find(id)
	return found.Number, ok
}

// Value returns the value of a text or of bytes, and whether it is there.
func (p Properties) Value(id PropertyID) (value []byte, ok bool) {
	found, ok := p.find(id)
	return found.Value, ok
}

func (p Properties) find(id PropertyID) (Property, bool) {
	for rest := p; len(rest) > 0; {
		next, tail, err := nextProperty(rest)
		if err != nil {
			break
		}
		if next.ID == id {
			return next, true
		}
		rest = tail
	}
	return Property{}, false
}

// AppendNumber appends a number. Of a value that is too large, the upper bits are lost. It panics
// if id is no number.
func (p Properties) AppendNumber(id PropertyID, value uint32) Properties {
	p = append(p, byte(id))
	switch id.info().kind {
	case byteKind:
		return append(p, byte(value))
	case shortKind:
		return binary.BigEndian.AppendUint16(p, uint16(value))
	case longKind:
		return binary.BigEndian.AppendUint32(p, value)
	case varintKind:
		return appendUvarint(p, int(value&maxRemaining))
	}
	panic("mqtt: the " + id.String() + " is no number")
}

// AppendText appends a text or bytes of at most 65,535 bytes; the rest is cut off. It panics if id is
// neither.
func (p Properties) AppendText(id PropertyID, value string) Properties {
	if k := id.info().kind; k != textKind && k != bytesKind {
		panic("mqtt: the " + id.String() + " is no text")
	}
	return appendString(append(p, byte(id)), value)
}

// AppendUser appends a user property. Key and value have at most 65,535 bytes; the rest is cut off.
func (p Properties) AppendUser(key, value string) Properties {
	return appendString(appendString(append(p, byte(UserProperty)), key), value)
}

// AppendProperty appends a property as All returns it.
func (p Properties) AppendProperty(q Property) Properties {
	switch q.ID.info().kind {
	case textKind, bytesKind:
		return appendString(append(p, byte(q.ID)), q.Value)
	case pairKind:
		return appendString(appendString(append(p, byte(q.ID)), q.Key), q.Value)
	}
	return p.AppendNumber(q.ID, q.Number)
}

func appendString[S []byte | string](dst []byte, s S) []byte {
	s = s[:min(len(s), 65535)]
	return append(binary.BigEndian.AppendUint16(dst, uint16(len(s))), s...)
}

// nextProperty returns the property that data begins with, and what follows it. It does not check
// texts.
func nextProperty(data []byte) (p Property, rest []byte, err error) {
	p.ID = PropertyID(data[0])
	r := reader{data: data[1:]}
	switch p.ID.info().kind {
	case byteKind:
		p.Number = uint32(r.byte())
	case shortKind:
		p.Number = uint32(r.uint16())
	case longKind:
		p.Number = r.uint32()
	case varintKind:
		p.Number = uint32(r.uvarint())
	case textKind, bytesKind:
		p.Value = r.bytes()
	case pairKind:
		p.Key, p.Value = r.bytes(), r.bytes()
	default:
		return p, nil, malformed("there is no property 0x%02X", data[0])
	}
	return p, r.data, r.err
}

// check checks the properties of a packet of type t.
func (p Properties) check(t Type) error {
	var seen uint64
	for rest := p; len(rest) > 0; {
		next, tail, err := nextProperty(rest)
		if err != nil {
			return err
		}
		info := next.ID.info()
		where := t.String()
		if t == inWill {
			where = "the will"
		}
		switch {
		case info.packets&(1<<t) == 0:
			return notAllowed(t, "%s cannot have the property %v", where, next.ID)
		case seen&(1<<next.ID) != 0 && next.ID != UserProperty && (next.ID != SubscriptionID || t != PUBLISH):
			return protocolError("%s has the property %v twice", where, next.ID)
		case next.Number < info.min || next.Number > info.max:
			return protocolError("the %v of %s is %d; it must be from %d to %d", next.ID, where, next.Number, info.min, info.max)
		case next.ID == ResponseTopic:
			err = CheckTopic(next.Value)
		case info.kind == pairKind:
			err = cmp.Or(checkText(next.Key, info.name), checkText(next.Value, info.name))
		case info.kind == textKind:
			err = checkText(next.Value, info.name)
		}
		if err != nil {
			return err
		}
		seen |= 1 << next.ID
		rest = tail
	}
	return nil
}
