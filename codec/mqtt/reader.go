package mqtt

import "encoding/binary"

// reader reads the fields of a packet. The first field that is not whole sets err, and from then on
// all fields are zero.
type reader struct {
	data []byte
	err  error
}

func (r *reader) take(n int) []byte {
	if n > len(r.data) {
		r.fail(errShort)
		return nil
	}
	field := r.data[:n:n]
	r.data = r.data[n:]
	return field
}

var errShort = &Error{MalformedPacket, "the packet ends within a field"}

// fail ends the reading, unless err is nil. The first error stays.
func (r *reader) fail(err error) {
	if err == nil {
		return
	}
	if r.err == nil {
		r.err = err
	}
	r.data = nil
}

func (r *reader) byte() byte {
	if f := r.take(1); f != nil {
		return f[0]
	}
	return 0
}

func (r *reader) uint16() uint16 {
	if f := r.take(2); f != nil {
		return binary.BigEndian.Uint16(f)
	}
	return 0
}

func (r *reader) uint32() uint32 {
	if f := r.take(4); f != nil {
		return binary.BigEndian.Uint32(f)
	}
	return 0
}

// uvarint reads a variable byte integer in its shortest form [MQTT-1.5.5-1].
func (r *reader) uvarint() int {
	v, n := uvarint(r.data)
	switch {
	case n <= 0:
		r.fail(errShort)
		return 0
	case n != uvarintSize(v):
		r.fail(malformed("a variable byte integer is longer than it must be"))
		return 0
	}
	r.data = r.data[n:]
	return v
}

func (r *reader) bytes() []byte { return r.take(int(r.uint16())) }

func (r *reader) text(what string) []byte {
	s := r.bytes()
	if r.err == nil {
		if err := checkText(s, what); err != nil {
			r.fail(err)
		}
	}
	return s
}

// filter reads a topic filter, which is not empty [MQTT-4.7.3-1].
func (r *reader) filter() []byte {
	f := r.text("the topic filter")
	if r.err == nil && len(f) == 0 {
		r.fail(malformed("the topic filter is empty"))
	}
	return f
}

// packetID reads a packet identifier, which is not 0 [MQTT-2.2.1-3].
func (r *reader) packetID(t Type) uint16 {
	id := r.uint16()
	if r.err == nil && id == 0 {
		r.fail(notAllowed(t, "packet identifier 0"))
	}
	return id
}

// properties reads the properties of a packet of type t, if the version has them.
func (r *reader) properties(v Version, t Type) Properties {
	if v != V5 {
		return nil
	}
	p := Properties(r.take(r.uvarint()))
	if r.err == nil {
		if err := p.check(t); err != nil {
			r.fail(err)
		}
	}
	return p
}

// end returns the reader's error, or that the packet has bytes behind its last field.
func (r *reader) end() error {
	if r.err == nil && len(r.data) > 0 {
		r.fail(malformed("%d bytes behind the packet's last field", len(r.data)))
	}
	return r.err
}
