package mqtt

import (
	"cmp"
	"encoding/binary"
)

// Connect is the CONNECT packet, the first that a client sends.
type Connect struct {
	Version Version
	// CleanStart: the server forgets the session that it may have. In version 3.1.1 it is called
	// clean session, and the new session ends with the connection.
	CleanStart bool
	// KeepAlive is the longest time in seconds between two packets of the client; 0 means no limit.
	// A server closes a connection that is silent for one and a half times as long.
	KeepAlive  uint16
	Properties Properties
	ClientID   []byte
	Will       *Will
	// HasUsername and HasPassword tell an empty field from none.
	HasUsername, HasPassword bool
	Username, Password       []byte
}

// Will is the message that a server publishes when a connection ends without a normal DISCONNECT.
type Will struct {
	QoS        byte
	Retain     bool
	Properties Properties
	Topic      []byte
	Payload    []byte
}

// ParseConnect parses a CONNECT of either version. The frame is borrowed. A CONNECT of another
// version is an *Error with the code UnsupportedProtocolVersion, and Version is set. One of version
// 3.1.1 with an empty ClientID and without CleanStart is an *Error with the code ClientIDNotValid. A
// server answers both with a CONNACK of that code.
func ParseConnect(frame []byte) (Connect, error) {
	r := open(frame, V311, CONNECT)
	name := r.bytes()
	c := Connect{Version: Version(r.byte())}
	if r.err == nil {
		switch {
		case string(name) != "MQTT" && string(name) != "MQIsdp": // [MQTT-3.1.2-1]
			r.fail(malformed("the protocol name is not MQTT"))
		case string(name) != "MQTT" || c.Version != V311 && c.Version != V5:
			r.fail(&Error{UnsupportedProtocolVersion, c.Version.String()})
		case c.Version == V5:
			r.fail(open(frame, V5, CONNECT).err) // its length must have the shortest form
		}
	}
	flags := r.byte()
	c.CleanStart = flags&2 != 0
	c.HasUsername, c.HasPassword = flags&128 != 0, flags&64 != 0
	c.KeepAlive = r.uint16()
	if r.err == nil {
		r.fail(checkConnectFlags(flags, c.Version))
	}
	c.Properties = r.properties(c.Version, CONNECT)
	if r.err == nil && len(c.Properties) > 0 {
		r.fail(checkAuthData(c.Properties))
	}
	c.ClientID = r.text("the client identifier")
	if flags&4 != 0 {
		c.Will = &Will{QoS: flags >> 3 & 3, Retain: flags&32 != 0}
		c.Will.Properties = r.properties(c.Version, inWill)
		c.Will.Topic, c.Will.Payload = r.bytes(), r.bytes()
		if r.err == nil {
			r.fail(CheckTopic(c.Will.Topic))
		}
	}
	if c.HasUsername {
		c.Username = r.text("the user name")
	}
	if c.HasPassword {
		c.Password = r.bytes()
	}
	if err := r.end(); err != nil {
		return c, err
	}
	return c, c.checkClientID()
}

// checkClientID: in version 3.1.1 a client without a name has no session to go on with [MQTT-3.1.3-8].
func (c *Connect) checkClientID() error {
	if c.Version == V311 && len(c.ClientID) == 0 && !c.CleanStart {
		return &Error{ClientIDNotValid, "an empty client identifier without clean session"}
	}
	return nil
}

func checkConnectFlags(flags byte, v Version) error {
	switch {
	case flags&1 != 0: // [MQTT-3.1.2-3]
		return malformed("CONNECT with its reserved flag")
	case flags&4 == 0 && flags&0x38 != 0: // [MQTT-3.1.2-11, MQTT-3.1.2-13]
		return malformed("CONNECT with will flags and without a will")
	case flags&0x18 == 0x18: // [MQTT-3.1.2-12]
		return malformed("a will with QoS 3")
	case v == V311 && flags&0xC0 == 0x40: // [MQTT-3.1.2-22] of version 3.1.1
		return malformed("CONNECT with a password and without a user name")
	}
	return nil
}

// checkAuthData: authentication data without a method is a protocol error (section 3.1.2.11.10).
func checkAuthData(p Properties) error {
	_, method := p.Value(AuthenticationMethod)
	if _, data := p.Value(AuthenticationData); data && !method {
		return protocolError("authentication data without an authentication method")
	}
	return nil
}

// Append appends the packet. If it fails, it returns dst unchanged and an *Error.
func (c *Connect) Append(dst []byte) ([]byte, error) {
	v := c.Version
	flags, err := c.flags()
	if err != nil {
		return dst, err
	}
	size := 2 + 4 + 1 + 1 + 2 + c.Properties.size(v) + 2 + len(c.ClientID)
	if w := c.Will; w != nil {
		size += w.Properties.size(v) + 2 + len(w.Topic) + 2 + len(w.Payload)
	}
	if c.HasUsername {
		size += 2 + len(c.Username)
	}
	if c.HasPassword {
		size += 2 + len(c.Password)
	}
	out, err := begin(dst, CONNECT, 0, size)
	if err != nil {
		return dst, err
	}
	out = append(appendString(out, "MQTT"), byte(v), flags)
	out = c.Properties.append(binary.BigEndian.AppendUint16(out, c.KeepAlive), v)
	out = appendString(out, c.ClientID)
	if w := c.Will; w != nil {
		out = appendString(appendString(w.Properties.append(out, v), w.Topic), w.Payload)
	}
	if c.HasUsername {
		out = appendString(out, c.Username)
	}
	if c.HasPassword {
		out = appendString(out, c.Password)
	}
	return out, nil
}

// flags returns the connect flags, after all checks of the packet.
func (c *Connect) flags() (byte, error) {
	v := c.Version
	if v != V311 && v != V5 {
		return 0, &Error{UnsupportedProtocolVersion, v.String()}
	}
	bit := func(set bool, n int) byte {
		if set {
			return 1 << n
		}
		return 0
	}
	flags := bit(c.HasUsername, 7) | bit(c.HasPassword, 6) | bit(c.CleanStart, 1)
	if err := c.Properties.checkFor(v, CONNECT); err != nil {
		return 0, err
	}
	if err := checkAuthData(c.Properties); v == V5 && err != nil {
		return 0, err
	}
	if w := c.Will; w != nil {
		flags |= 4 | w.QoS<<3 | bit(w.Retain, 5)
		if err := w.Properties.checkFor(v, inWill); err != nil {
			return 0, err
		}
		if err := CheckTopic(w.Topic); err != nil {
			return 0, err
		}
		if w.QoS > 2 || len(w.Payload) > 65535 {
			return 0, malformed("a will with QoS %d and %d bytes", w.QoS, len(w.Payload))
		}
	}
	if err := checkText(c.ClientID, "the client identifier"); err != nil {
		return 0, err
	}
	if err := checkText(c.Username, "the user name"); err != nil {
		return 0, err
	}
	if len(c.Password) > 65535 {
		return 0, malformed("the password has %d bytes; the limit is 65535", len(c.Password))
	}
	return flags, cmp.Or(checkConnectFlags(flags, v), c.checkClientID())
}

// Connack is the CONNACK packet, the server's answer to a CONNECT.
type Connack struct {
	SessionPresent bool
	Code           ReasonCode // in version 3.1.1 the nearest of its return codes is sent
	Properties     Properties // version 5
}

// ParseConnack parses a CONNACK. The frame is borrowed.
func ParseConnack(frame []byte, v Version) (Connack, error) {
	r := open(frame, v, CONNACK)
	flags, code := r.byte(), r.byte()
	c := Connack{flags == 1, ReasonCode(code), r.properties(v, CONNACK)}
	if r.err == nil {
		switch {
		case flags > 1:
			r.fail(malformed("CONNACK with flags %08b", flags))
		case v == V311 && int(code) >= len(connackCodes):
			r.fail(malformed("CONNACK with return code %d", code))
		case v == V311:
			c.Code = connackCodes[code]
		}
	}
	if r.err == nil {
		r.fail(c.check(v))
	}
	return c, r.end()
}

func (c *Connack) check(v Version) error {
	if c.SessionPresent && c.Code != Success { // [MQTT-3.2.2-6]
		return protocolError("CONNACK with a session and %v", c.Code)
	}
	return c.Code.checkFor(v, CONNACK)
}

// Append appends the packet. If it fails, it returns dst unchanged and an *Error.
func (c *Connack) Append(dst []byte, v Version) ([]byte, error) {
	if err := cmp.Or(c.check(v), c.Properties.checkFor(v, CONNACK)); err != nil {
		return dst, err
	}
	out, err := begin(dst, CONNACK, 0, 2+c.Properties.size(v))
	if err != nil {
		return dst, err
	}
	flags, code := byte(0), byte(c.Code)
	if c.SessionPresent {
		flags = 1
	}
	if v != V5 {
		code = c.Code.connack311()
	}
	return c.Properties.append(append(out, flags, code), v), nil
}
