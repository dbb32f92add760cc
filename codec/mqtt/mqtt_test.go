package mqtt_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/codec/codectest"
	"github.com/loopwheel/loopwheel/codec/mqtt"
)

func wire(t testing.TB, s string) []byte {
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// publish returns a PUBLISH of n bytes on the wire, or nil if there is none of that length.
func publish(n int) []byte {
	for header := 2; header <= 5; header++ {
		p := mqtt.Publish{Topic: []byte("t"), Payload: bytes.Repeat([]byte("x"), max(0, n-header-3))}
		if frame, err := p.Append(nil, mqtt.V311); err == nil && len(frame) == n {
			return frame
		}
	}
	return nil
}

func TestConformance(t *testing.T) {
	codectest.Suite{
		New:       func() codec.Codec { return mqtt.Codec{Max: 1000} },
		Samples:   [][]byte{publish(5), publish(129), publish(131), publish(1000), {0xC0, 0}, {0x40, 2, 0x12, 0x34}},
		Fill:      publish,
		Max:       1000,
		TooLong:   [][]byte{wire(t, "30 e6 07"), wire(t, "30 ff ff ff 7f")},
		Malformed: [][]byte{{0}, {0x36}, {0x38}, {0x61}, {0x80}, {0xA1}, {0xC1}, wire(t, "30 ff ff ff ff"), wire(t, "30 80 80 80 80 00")},
	}.Run(t)
}

func TestConfig(t *testing.T) {
	for size, want := range map[int]error{0: nil, 2: nil, 1<<28 + 4: nil, -1: codec.ErrConfig, 1: codec.ErrConfig, 1<<28 + 5: codec.ErrConfig} {
		if err := (mqtt.Codec{Max: size}).Validate(); !errors.Is(err, want) {
			t.Errorf("Validate of Max %d: %v, want %v", size, err, want)
		}
	}
}

// packets are packets of each type with their wire form, written by hand from the standard: parsing
// gives what is printed, and appending gives the bytes again.
var packets = []struct {
	name    string
	version mqtt.Version
	wire    string
	want    string
}{
	{"connect", mqtt.V311, "10 10 00 04 4d515454 04 02 003c 00 04 64657631", "{3.1.1 true 60 - dev1 <nil> - -}"},
	{"connect, all fields", mqtt.V311, "10 20 00 04 4d515454 04 ec 0000 0001 61 0003 772f74 0003 627965 0002 7573 0003 707764",
		"{3.1.1 false 0 - a &{1 true - w/t bye} us pwd}"},
	{"connect 5", mqtt.V5, "10 23 00 04 4d515454 05 04 000a 05 11 00000e10 0000 0a 18 00000005 02 0000001e 0001 77 0001 78",
		"{5.0 false 10 session expiry interval=3600  &{0 false will delay interval=5 message expiry interval=30 w x} - -}"},
	{"connect 5, password alone", mqtt.V5, "10 11 00 04 4d515454 05 42 0000 00 0001 61 0001 70", "{5.0 true 0 - a <nil> - p}"},
	{"connack", mqtt.V311, "20 02 01 00", "{true success -}"},
	{"connack, refused", mqtt.V311, "20 02 00 05", "{false not authorized -}"},
	{"connack 5", mqtt.V5, "20 08 00 00 05 21 0014 24 01", "{false success receive maximum=20 maximum QoS=1}"},
	{"publish", mqtt.V311, "30 07 0003 612f62 6869", "{false 0 false a/b 0 - hi}"},
	{"publish QoS 2", mqtt.V311, "3d 07 0003 612f62 0a0b", "{true 2 true a/b 2571 - }"},
	{"publish 5", mqtt.V5, "32 15 0001 61 0007 0e 01 01 03 0004 74657874 0b 07 0b 8001 68", "{false 1 false a 7 payload format indicator=1 content type=text subscription identifier=7 subscription identifier=128 h}"},
	{"publish 5, alias", mqtt.V5, "30 07 0000 03 23 0009 68", "{false 0 false  0 topic alias=9 h}"},
	{"puback", mqtt.V311, "40 02 1234", "{PUBACK 4660 success -}"},
	{"puback 5, short", mqtt.V5, "40 02 1234", "{PUBACK 4660 success -}"},
	{"pubrec 5, code", mqtt.V5, "50 03 1234 97", "{PUBREC 4660 quota exceeded -}"},
	{"pubrel", mqtt.V311, "62 02 0001", "{PUBREL 1 success -}"},
	{"pubcomp 5", mqtt.V5, "70 0b 0001 92 07 26 0001 6b 0001 76", "{PUBCOMP 1 packet identifier not found user property=k:v}"},
	{"subscribe", mqtt.V311, "82 0a 0001 0001 61 00 0001 23 02", "{1 - [{a 0 false false 0} {# 2 false false 0}]}"},
	{"subscribe 5", mqtt.V5, "82 0f 0001 02 0b 05 0007 612f2b2f622f23 2d", "{1 subscription identifier=5 [{a/+/b/# 1 true true 2}]}"},
	{"suback", mqtt.V311, "90 05 0001 00 02 80", "{SUBACK 1 - 000280}"},
	{"suback 5", mqtt.V5, "90 06 0001 00 00 8f 9e", "{SUBACK 1 - 008f9e}"},
	{"unsubscribe", mqtt.V311, "a2 08 0009 0001 61 0001 62", "{9 - [a b]}"},
	{"unsubscribe 5", mqtt.V5, "a2 06 0009 00 0001 61", "{9 - [a]}"},
	{"unsuback", mqtt.V311, "b0 02 0009", "{UNSUBACK 9 - }"},
	{"unsuback 5", mqtt.V5, "b0 05 0009 00 00 11", "{UNSUBACK 9 - 0011}"},
	{"pingreq", mqtt.V311, "c0 00", "ping"},
	{"pingresp", mqtt.V5, "d0 00", "ping"},
	{"disconnect", mqtt.V311, "e0 00", "{success -}"},
	{"disconnect 5", mqtt.V5, "e0 01 8b", "{server shutting down -}"},
	{"disconnect 5, properties", mqtt.V5, "e0 09 9d 07 1c 0004 623a3939", "{server moved server reference=b:99}"},
	{"auth", mqtt.V5, "f0 0a 18 08 15 0001 6d 16 0001 64", "{continue authentication authentication method=m authentication data=d}"},
	{"auth, short", mqtt.V5, "f0 00", "{success -}"},
}

func properties(p mqtt.Properties) string {
	var all []string
	for q := range p.All() {
		switch {
		case q.ID == mqtt.UserProperty:
			all = append(all, fmt.Sprintf("%v=%s:%s", q.ID, q.Key, q.Value))
		case q.Value != nil:
			all = append(all, fmt.Sprintf("%v=%s", q.ID, q.Value))
		default:
			all = append(all, fmt.Sprintf("%v=%d", q.ID, q.Number))
		}
	}
	if all == nil {
		return "-"
	}
	return strings.Join(all, " ")
}

// parse returns a packet as text, and its wire form appended again.
func parse(frame []byte, v mqtt.Version) (text string, again []byte, err error) {
	field := func(has bool, value []byte) string {
		if has {
			return string(value)
		}
		return "-"
	}
	switch mqtt.TypeOf(frame) {
	case mqtt.CONNECT:
		c, err := mqtt.ParseConnect(frame)
		if err != nil {
			return "", nil, err
		}
		will := "<nil>"
		if w := c.Will; w != nil {
			will = fmt.Sprintf("&{%d %v %s %s %s}", w.QoS, w.Retain, properties(w.Properties), w.Topic, w.Payload)
		}
		text = fmt.Sprintf("{%v %v %d %s %s %s %s %s}", c.Version, c.CleanStart, c.KeepAlive, properties(c.Properties), c.ClientID,
			will, field(c.HasUsername, c.Username), field(c.HasPassword, c.Password))
		again, err = c.Append(nil)
		return text, again, err
	case mqtt.CONNACK:
		c, err := mqtt.ParseConnack(frame, v)
		if err != nil {
			return "", nil, err
		}
		again, err = c.Append(nil, v)
		return fmt.Sprintf("{%v %v %s}", c.SessionPresent, c.Code, properties(c.Properties)), again, err
	case mqtt.PUBLISH:
		p, err := mqtt.ParsePublish(frame, v)
		if err != nil {
			return "", nil, err
		}
		again, err = p.Append(nil, v)
		return fmt.Sprintf("{%v %d %v %s %d %s %s}", p.Dup, p.QoS, p.Retain, p.Topic, p.ID, properties(p.Properties), p.Payload), again, err
	case mqtt.PUBACK, mqtt.PUBREC, mqtt.PUBREL, mqtt.PUBCOMP:
		a, err := mqtt.ParseAck(frame, v)
		if err != nil {
			return "", nil, err
		}
		again, err = a.Append(nil, v)
		return fmt.Sprintf("{%v %d %v %s}", a.Type, a.ID, a.Code, properties(a.Properties)), again, err
	case mqtt.SUBSCRIBE:
		s, err := mqtt.ParseSubscribe(frame, v)
		if err != nil {
			return "", nil, err
		}
		all := slices.Collect(s.All())
		var list []string
		for _, e := range all {
			list = append(list, fmt.Sprintf("{%s %d %v %v %d}", e.Filter, e.QoS, e.NoLocal, e.RetainAsPublished, e.RetainHandling))
		}
		again, err = mqtt.AppendSubscribe(nil, v, s.ID, s.Properties, all...)
		return fmt.Sprintf("{%d %s %s}", s.ID, properties(s.Properties), list), again, err
	case mqtt.UNSUBSCRIBE:
		u, err := mqtt.ParseUnsubscribe(frame, v)
		if err != nil {
			return "", nil, err
		}
		all := slices.Collect(u.All())
		again, err = mqtt.AppendUnsubscribe(nil, v, u.ID, u.Properties, all...)
		return fmt.Sprintf("{%d %s %s}", u.ID, properties(u.Properties), all), again, err
	case mqtt.SUBACK, mqtt.UNSUBACK:
		a, err := mqtt.ParseSubAck(frame, v)
		if err != nil {
			return "", nil, err
		}
		again, err = a.Append(nil, v)
		return fmt.Sprintf("{%v %d %s %x}", a.Type, a.ID, properties(a.Properties), a.Codes), again, err
	case mqtt.DISCONNECT:
		d, err := mqtt.ParseDisconnect(frame, v)
		if err != nil {
			return "", nil, err
		}
		again, err = d.Append(nil, v)
		return fmt.Sprintf("{%v %s}", d.Code, properties(d.Properties)), again, err
	case mqtt.AUTH:
		a, err := mqtt.ParseAuth(frame, v)
		if err != nil {
			return "", nil, err
		}
		again, err = a.Append(nil, v)
		return fmt.Sprintf("{%v %s}", a.Code, properties(a.Properties)), again, err
	}
	return "ping", mqtt.AppendPing(nil, mqtt.TypeOf(frame)), mqtt.CheckPing(frame)
}

func TestPackets(t *testing.T) {
	for _, p := range packets {
		t.Run(p.name, func(t *testing.T) {
			frame := wire(t, p.wire)
			text, again, err := parse(frame, p.version)
			if err != nil {
				t.Fatalf("parse: %v", err)
			}
			if text != p.want {
				t.Errorf("parsed %s, want %s", text, p.want)
			}
			if !bytes.Equal(again, frame) {
				t.Errorf("appended % x, want % x", again, frame)
			}
			for n := 2; n < len(frame); n++ { // each length that the header does not say
				if _, _, err := parse(frame[:n], p.version); !errors.Is(err, codec.ErrMalformed) {
					t.Errorf("the first %d bytes: %v, want ErrMalformed", n, err)
				}
			}
			for n := range frame[2:] { // each field cut off, the header corrected
				cut := append([]byte{frame[0], byte(n)}, frame[2:2+n]...)
				if text, again, err := parse(cut, p.version); err == nil && !bytes.Equal(again, cut) {
					t.Errorf("% x is %s, appended % x", cut, text, again)
				}
			}
		})
	}
}

func TestRefused(t *testing.T) {
	for _, tt := range []struct {
		name    string
		version mqtt.Version
		wire    string
		want    mqtt.ReasonCode
	}{
		{"an old version", mqtt.V311, "10 12 00 06 4d5149736470 03 02 003c 00 04 64657631", mqtt.UnsupportedProtocolVersion},
		{"another version", mqtt.V311, "10 10 00 04 4d515454 06 02 003c 00 04 64657631", mqtt.UnsupportedProtocolVersion},
		{"another protocol", mqtt.V311, "10 10 00 04 48545450 04 02 003c 00 04 64657631", mqtt.MalformedPacket},
		{"connect's reserved flag", mqtt.V311, "10 0d 00 04 4d515454 04 03 003c 0001 61", mqtt.MalformedPacket},
		{"a will's QoS 3", mqtt.V311, "10 13 00 04 4d515454 04 1e 003c 0001 61 0001 61 0001 61", mqtt.MalformedPacket},
		{"will flags without a will", mqtt.V311, "10 0d 00 04 4d515454 04 22 003c 0001 61", mqtt.MalformedPacket},
		{"a password without a name", mqtt.V311, "10 10 00 04 4d515454 04 42 003c 0001 61 0001 61", mqtt.MalformedPacket},
		{"a will with a wildcard", mqtt.V311, "10 13 00 04 4d515454 04 06 003c 0001 61 0001 23 0001 61", mqtt.MalformedPacket},
		{"authentication data alone", mqtt.V5, "10 12 00 04 4d515454 05 02 003c 04 16 0001 61 0001 61", mqtt.ProtocolError},
		{"bytes behind connect", mqtt.V311, "10 0e 00 04 4d515454 04 02 003c 0001 61 00", mqtt.MalformedPacket},
		{"connack's flags", mqtt.V311, "20 02 02 00", mqtt.MalformedPacket},
		{"a wildcard in a topic", mqtt.V311, "30 03 0001 2b", mqtt.MalformedPacket},
		{"no topic", mqtt.V311, "30 02 0000", mqtt.MalformedPacket},
		{"no topic, no alias", mqtt.V5, "30 03 0000 00", mqtt.ProtocolError},
		{"alias 0", mqtt.V5, "30 07 0001 61 03 23 0000", mqtt.TopicAliasInvalid},
		{"NUL in a topic", mqtt.V311, "30 03 0001 00", mqtt.MalformedPacket},
		{"a line feed in a topic", mqtt.V311, "30 03 0001 0a", mqtt.MalformedPacket},
		{"U+009F in a topic", mqtt.V311, "30 04 0002 c29f", mqtt.MalformedPacket},
		{"a surrogate in a topic", mqtt.V311, "30 05 0003 eda080", mqtt.MalformedPacket},
		{"packet identifier 0", mqtt.V311, "32 05 0001 61 0000", mqtt.ProtocolError},
		{"an empty filter", mqtt.V311, "82 05 0001 0000 00", mqtt.MalformedPacket},
		{"an empty filter of UNSUBSCRIBE", mqtt.V5, "a2 05 0001 00 0000", mqtt.MalformedPacket},
		{"an unknown property", mqtt.V5, "30 06 0001 61 02 7f 00", mqtt.MalformedPacket},
		{"another packet's property", mqtt.V5, "30 07 0001 61 03 21 0001", mqtt.ProtocolError},
		{"another packet's reason code", mqtt.V5, "62 03 0001 10", mqtt.ProtocolError},
		{"no client identifier and no clean session", mqtt.V311, "10 0c 0004 4d515454 04 00 0000 0000", mqtt.ClientIDNotValid},
		{"a property twice", mqtt.V5, "30 08 0001 61 04 01 00 01 00", mqtt.ProtocolError},
		{"a property out of range", mqtt.V5, "30 06 0001 61 02 01 02", mqtt.ProtocolError},
		{"a property cut off", mqtt.V5, "30 06 0001 61 02 02 02", mqtt.MalformedPacket},
		{"a property's text", mqtt.V5, "30 08 0001 61 04 03 0001 ff", mqtt.MalformedPacket},
		{"a wildcard in a response topic", mqtt.V5, "30 08 0001 61 04 08 0001 23", mqtt.MalformedPacket},
		{"properties longer than the packet", mqtt.V5, "30 04 0001 61 7f", mqtt.MalformedPacket},
		{"a property length of five bytes", mqtt.V5, "30 08 0001 61 80 80 80 80 00", mqtt.MalformedPacket},
		{"a property length longer than needed", mqtt.V5, "30 05 0001 61 80 00", mqtt.MalformedPacket},
		{"a remaining length longer than needed", mqtt.V5, "30 84 00 0001 61 00", mqtt.MalformedPacket},
		{"a filter's options", mqtt.V311, "82 06 0001 0001 61 03", mqtt.MalformedPacket},
		{"reserved options", mqtt.V5, "82 07 0001 00 0001 61 40", mqtt.MalformedPacket},
		{"options of version 5", mqtt.V311, "82 06 0001 0001 61 04", mqtt.MalformedPacket},
		{"no local on a share", mqtt.V5, "82 0f 0001 00 0009 2473686172652f672f 05", mqtt.ProtocolError},
		{"nothing to subscribe to", mqtt.V311, "82 02 0001", mqtt.ProtocolError},
		{"nothing to unsubscribe from", mqtt.V311, "a2 02 0001", mqtt.ProtocolError},
		{"suback without a code", mqtt.V311, "90 02 0001", mqtt.MalformedPacket},
		{"suback's codes of version 5", mqtt.V311, "90 03 0001 8f", mqtt.MalformedPacket},
		{"ping with a body", mqtt.V311, "c0 01 00", mqtt.MalformedPacket},
		{"disconnect with a body", mqtt.V311, "e0 01 00", mqtt.MalformedPacket},
		{"auth before version 5", mqtt.V311, "f0 00", mqtt.ProtocolError},
		{"auth with another code", mqtt.V5, "f0 01 80", mqtt.ProtocolError},
		{"auth without a method", mqtt.V5, "f0 02 18 00", mqtt.ProtocolError},
		{"auth with data alone", mqtt.V5, "f0 06 00 04 16 0001 64", mqtt.ProtocolError},
		{"connack with a session and a failure", mqtt.V5, "20 03 01 80 00", mqtt.ProtocolError},
		{"the same before version 5", mqtt.V311, "20 02 01 05", mqtt.ProtocolError},
		{"connect's remaining length longer than needed", mqtt.V5, "10 8e 00 0004 4d515454 05 02 003c 00 0001 61", mqtt.MalformedPacket},
		{"ping's remaining length longer than needed", mqtt.V5, "c0 80 00", mqtt.MalformedPacket},
	} {
		t.Run(tt.name, func(t *testing.T) {
			text, _, err := parse(wire(t, tt.wire), tt.version)
			var got *mqtt.Error
			if parsed := text != "" && text != "ping"; parsed || !errors.As(err, &got) || got.Code != tt.want { // else the error is Append's
				t.Fatalf("parsed %q, error %v; want the code %v", text, err, tt.want)
			}
		})
	}
}

// TestAppendRefuses: nothing is sent that this package would refuse to read.
func TestAppendRefuses(t *testing.T) {
	long := bytes.Repeat([]byte("x"), 65536)
	var size mqtt.Properties
	size = size.AppendNumber(mqtt.MaximumPacketSize, 5)
	for name, appended := range map[string]func(dst []byte) ([]byte, error){
		"QoS 3":          func(d []byte) ([]byte, error) { return (&mqtt.Publish{QoS: 3, Topic: []byte("a"), ID: 1}).Append(d, 5) },
		"DUP with QoS 0": func(d []byte) ([]byte, error) { return (&mqtt.Publish{Dup: true, Topic: []byte("a")}).Append(d, 5) },
		"no identifier":  func(d []byte) ([]byte, error) { return (&mqtt.Publish{QoS: 1, Topic: []byte("a")}).Append(d, 5) },
		"long topic":     func(d []byte) ([]byte, error) { return (&mqtt.Publish{Topic: long}).Append(d, 4) },
		"another's property": func(d []byte) ([]byte, error) {
			return (&mqtt.Publish{Topic: []byte("a"), Properties: size}).Append(d, 5)
		},
		"ack 0":               func(d []byte) ([]byte, error) { return (&mqtt.Ack{Type: mqtt.PUBACK}).Append(d, 4) },
		"ack of another type": func(d []byte) ([]byte, error) { return (&mqtt.Ack{Type: mqtt.SUBACK, ID: 1}).Append(d, 4) },
		"no filter":           func(d []byte) ([]byte, error) { return mqtt.AppendSubscribe(d, 4, 1, nil) },
		"a wrong filter": func(d []byte) ([]byte, error) {
			return mqtt.AppendSubscribe(d, 4, 1, nil, mqtt.Subscription{Filter: []byte("a#")})
		},
		"nothing to give up":  func(d []byte) ([]byte, error) { return mqtt.AppendUnsubscribe(d, 4, 1, nil) },
		"no codes":            func(d []byte) ([]byte, error) { return (&mqtt.SubAck{Type: mqtt.UNSUBACK, ID: 1}).Append(d, 5) },
		"session and failure": func(d []byte) ([]byte, error) { return (&mqtt.Connack{SessionPresent: true, Code: 0x80}).Append(d, 5) },
		"auth":                func(d []byte) ([]byte, error) { return (&mqtt.Auth{}).Append(d, 4) },
		"no client identifier and no clean session": func(d []byte) ([]byte, error) { return (&mqtt.Connect{Version: mqtt.V311}).Append(d) },
		"no version":            func(d []byte) ([]byte, error) { return (&mqtt.Connect{}).Append(d) },
		"a name that's no text": func(d []byte) ([]byte, error) { return (&mqtt.Connect{Version: 5, ClientID: []byte{255}}).Append(d) },
		"a long will": func(d []byte) ([]byte, error) {
			return (&mqtt.Connect{Version: 5, Will: &mqtt.Will{Topic: []byte("a"), Payload: long}}).Append(d)
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := appended([]byte("before"))
			if !errors.Is(err, codec.ErrMalformed) || string(got) != "before" {
				t.Errorf("appended %.40q, error %v; want no more, and ErrMalformed", got, err)
			}
		})
	}
	if dst, err := (mqtt.Codec{}).AppendFrame(nil, wire(t, "c000c000")); err == nil {
		t.Errorf("two packets as one frame: % x, want an error", dst)
	}
}

// TestReasonCodes: each packet of version 5 may have the codes that its own section lists, and no
// other one, read and written.
func TestReasonCodes(t *testing.T) {
	var method mqtt.Properties
	method = method.AppendText(mqtt.AuthenticationMethod, "m")
	ack := func(typ mqtt.Type) func(code mqtt.ReasonCode) ([]byte, error) {
		return func(code mqtt.ReasonCode) ([]byte, error) {
			return (&mqtt.Ack{Type: typ, ID: 1, Code: code}).Append(nil, mqtt.V5)
		}
	}
	subAck := func(typ mqtt.Type) func(code mqtt.ReasonCode) ([]byte, error) {
		return func(code mqtt.ReasonCode) ([]byte, error) {
			return (&mqtt.SubAck{Type: typ, ID: 1, Codes: []byte{byte(code)}}).Append(nil, mqtt.V5)
		}
	}
	for _, p := range []struct {
		before, after string // the packet around the code
		codes         string
		write         func(code mqtt.ReasonCode) ([]byte, error)
	}{
		{"20 03 00", "00", "00 80 81 82 83 84 85 86 87 88 89 8a 8c 90 95 97 99 9a 9b 9c 9d 9f", // section 3.2.2.2
			func(code mqtt.ReasonCode) ([]byte, error) { return (&mqtt.Connack{Code: code}).Append(nil, mqtt.V5) }},
		{"40 03 0001", "", "00 10 80 83 87 90 91 97 99", ack(mqtt.PUBACK)},                // section 3.4.2.1
		{"50 03 0001", "", "00 10 80 83 87 90 91 97 99", ack(mqtt.PUBREC)},                // section 3.5.2.1
		{"62 03 0001", "", "00 92", ack(mqtt.PUBREL)},                                     // section 3.6.2.1
		{"70 03 0001", "", "00 92", ack(mqtt.PUBCOMP)},                                    // section 3.7.2.1
		{"90 04 0001 00", "", "00 01 02 80 83 87 8f 91 97 9e a1 a2", subAck(mqtt.SUBACK)}, // section 3.9.3
		{"b0 04 0001 00", "", "00 11 80 83 87 8f 91", subAck(mqtt.UNSUBACK)},              // section 3.11.3
		{"e0 01", "", "00 04 80 81 82 83 87 89 8b 8c 8d 8e 8f 90 93 94 95 96 97 98 99 9a 9b 9c 9d 9e 9f a0 a1 a2", // section 3.14.2.1; 8c: section 2.4
			func(code mqtt.ReasonCode) ([]byte, error) { return (&mqtt.Disconnect{Code: code}).Append(nil, mqtt.V5) }},
		{"f0 06", "04 15 0001 6d", "00 18 19", // section 3.15.2.1
			func(code mqtt.ReasonCode) ([]byte, error) {
				return (&mqtt.Auth{Code: code, Properties: method}).Append(nil, mqtt.V5)
			}},
	} {
		for n := range 256 {
			code := mqtt.ReasonCode(n)
			frame := slices.Concat(wire(t, p.before), []byte{byte(n)}, wire(t, p.after))
			want := bytes.IndexByte(wire(t, p.codes), byte(n)) >= 0
			text, _, readErr := parse(frame, mqtt.V5)
			if text != "" {
				readErr = nil // it is Append's
			}
			written, writeErr := p.write(code)
			for what, err := range map[string]error{"read": readErr, "written": writeErr} {
				var refused *mqtt.Error
				if (err == nil) != want || err != nil && (!errors.As(err, &refused) || refused.Code != mqtt.ProtocolError) {
					t.Errorf("%v with %v is %s with the error %v; is it allowed: %v", mqtt.TypeOf(frame), code, what, err, want)
				}
			}
			if writeErr == nil && n > 0 && !bytes.Equal(written, frame) || writeErr != nil && len(written) > 0 {
				t.Errorf("%v with %v is written as % x, %v; want % x, or nothing", mqtt.TypeOf(frame), code, written, writeErr, frame)
			}
		}
	}
}

func TestConnackCodes(t *testing.T) {
	for code := range 256 {
		frame, err := (&mqtt.Connack{Code: mqtt.ReasonCode(code)}).Append(nil, mqtt.V311)
		if err != nil {
			t.Fatal(err)
		}
		if got := frame[3]; got > 5 || (got == 0) != (code == 0) {
			t.Errorf("%v in version 3.1.1 is return code %d", mqtt.ReasonCode(code), got)
		}
	}
}

func TestTopics(t *testing.T) {
	for _, tt := range []struct {
		filter, topics, none string // separated by spaces
	}{
		{"a/b", "a/b", "a a/b/ a/b/c /a/b A/b"},
		{"#", "a a/b /a /", "$SYS $SYS/a"},
		{"+", "a", "/a a/ a/b $SYS"},
		{"a/#", "a a/ a/b a/b/c", "ab b/a"},
		{"a/+/c", "a/b/c a//c", "a/c a/b/b/c a/b/c/d"},
		{"+/+", "a/b / /a a/", "a a/b/c $SYS/a"},
		{"/+", "/a /", "a a/"},
		{"+/b/#", "a/b a/b/c /b", "b a/c $a/b"},
		{"$SYS/#", "$SYS $SYS/a", "SYS/a"},
		{"a/", "a/", "a"},
	} {
		t.Run(tt.filter, func(t *testing.T) {
			if err := mqtt.CheckFilter([]byte(tt.filter)); err != nil {
				t.Errorf("CheckFilter: %v", err)
			}
			for _, topic := range strings.Fields(tt.topics) {
				if !mqtt.Match([]byte(tt.filter), []byte(topic)) {
					t.Errorf("does not match %q", topic)
				}
			}
			for _, topic := range strings.Fields(tt.none) {
				if mqtt.Match([]byte(tt.filter), []byte(topic)) {
					t.Errorf("matches %q", topic)
				}
			}
		})
	}
	for _, filter := range []string{"", "a#", "#/a", "a/#/b", "a+", "+a/b", "##", "a/+b", "$share/", "$share/g", "$share/g/", "$share//a", "$share/+/a", "$share/g/a#", strings.Repeat("a", 65536), "\xff", "a\x00"} {
		if err := mqtt.CheckFilter([]byte(filter)); err == nil {
			t.Errorf("CheckFilter(%.20q): nil, want an error", filter)
		}
	}
	group, topics, ok := mqtt.Shared([]byte("$share/g/a/+"))
	if !ok || string(group) != "g" || string(topics) != "a/+" {
		t.Errorf("Shared: %q, %q, %v; want g, a/+, true", group, topics, ok)
	}
	if _, topics, ok := mqtt.Shared([]byte("$shared/g/a")); ok || string(topics) != "$shared/g/a" {
		t.Errorf("Shared of another filter: %q, %v; want all of it, false", topics, ok)
	}
}

func TestProperties(t *testing.T) {
	var p mqtt.Properties
	p = p.AppendNumber(mqtt.SessionExpiry, 1<<32-1).AppendNumber(mqtt.ReceiveMaximum, 9).AppendText(mqtt.AuthenticationMethod, "m").AppendUser("k", "v")
	if n, ok := p.Number(mqtt.ReceiveMaximum); n != 9 || !ok {
		t.Errorf("Number: %d, %v; want 9, true", n, ok)
	}
	if v, ok := p.Value(mqtt.AuthenticationMethod); string(v) != "m" || !ok {
		t.Errorf("Value: %q, %v; want m, true", v, ok)
	}
	if v, ok := p.Value(mqtt.AuthenticationData); ok {
		t.Errorf("Value of what is not there: %q, %v", v, ok)
	}
	var again mqtt.Properties
	for q := range p.All() {
		again = again.AppendProperty(q)
	}
	if !bytes.Equal(again, p) {
		t.Errorf("appended again: % x, want % x", again, p)
	}
	for id := range 256 {
		id := mqtt.PropertyID(id)
		for name, f := range map[string]func(){"AppendNumber": func() { p.AppendNumber(id, 1) }, "AppendText": func() { p.AppendText(id, "x") }} {
			func() {
				defer func() {
					if r := recover(); r != nil && !strings.Contains(fmt.Sprint(r), id.String()) {
						t.Errorf("%s of %v panics with %v", name, id, r)
					}
				}()
				f()
			}()
		}
	}
}

func TestNothingIsAllocated(t *testing.T) {
	var props mqtt.Properties
	props = props.AppendNumber(mqtt.MessageExpiry, 60).AppendUser("k", "v")
	pub := mqtt.Publish{QoS: 1, Topic: []byte("a/b"), ID: 7, Properties: props, Payload: []byte("hello")}
	frame, _ := pub.Append(nil, mqtt.V5)
	ack, _ := (&mqtt.Ack{Type: mqtt.PUBACK, ID: 7}).Append(nil, mqtt.V5)
	buf, ping := make([]byte, 0, 256), []byte{0xC0, 0}
	var err error
	for name, f := range map[string]func(){
		"ParsePublish": func() { pub, err = mqtt.ParsePublish(frame, mqtt.V5) },
		"properties": func() {
			for q := range pub.Properties.All() {
				buf = append(buf[:0], q.Value...)
			}
		},
		"Publish.Append": func() { buf, err = pub.Append(buf[:0], mqtt.V5) },
		"ParseAck":       func() { _, err = mqtt.ParseAck(ack, mqtt.V5) },
		"Ack.Append":     func() { a := mqtt.Ack{Type: mqtt.PUBACK, ID: 7}; buf, err = a.Append(buf[:0], mqtt.V5) },
		"ping":           func() { err = mqtt.CheckPing(ping); buf = mqtt.AppendPing(buf[:0], mqtt.PINGRESP) },
		"Match":          func() { mqtt.Match([]byte("a/+"), pub.Topic) },
	} {
		if n := testing.AllocsPerRun(100, f); n != 0 || err != nil {
			t.Errorf("%s allocates %v times, error %v; want 0, nil", name, n, err)
		}
	}
}

// FuzzPackets: what is parsed without an error can be appended again, and is then the same packet.
func FuzzPackets(f *testing.F) {
	for _, p := range packets {
		f.Add(wire(f, p.wire), p.version == mqtt.V5)
	}
	f.Fuzz(func(t *testing.T, data []byte, five bool) {
		v := mqtt.V311
		if five {
			v = mqtt.V5
		}
		_, frame, err := mqtt.Codec{Max: 1 << 20}.Decode(data)
		if err != nil || frame == nil {
			return
		}
		text, again, err := parse(frame, v)
		if text == "" {
			var e *mqtt.Error
			if !errors.As(err, &e) || e.Code < 0x80 {
				t.Fatalf("% x: error %v, want an *Error with a failure", frame, err)
			}
			return
		}
		if err != nil { // filters and pings may be wrong in themselves
			return
		}
		text2, _, err := parse(again, v)
		if err != nil || text2 != text {
			t.Fatalf("% x is %s; appended % x is %s, error %v", frame, text, again, text2, err)
		}
	})
}

func BenchmarkPublish(b *testing.B) {
	pub := mqtt.Publish{QoS: 1, Topic: []byte("sensors/kitchen/temperature"), ID: 7, Payload: []byte("21.5")}
	frame, _ := pub.Append(nil, mqtt.V5)
	b.Run("parse", func(b *testing.B) {
		for b.Loop() {
			if _, err := mqtt.ParsePublish(frame, mqtt.V5); err != nil {
				b.Fatal(err)
			}
		}
	})
	buf := make([]byte, 0, 256)
	b.Run("append", func(b *testing.B) {
		for b.Loop() {
			buf, _ = pub.Append(buf[:0], mqtt.V5)
		}
	})
}
