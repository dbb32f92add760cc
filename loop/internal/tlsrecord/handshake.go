package tlsrecord

import "encoding/binary"

// Messages after the handshake (RFC 8446, sections 4 and 4.6).
const (
	msgHeader        = 4
	newSessionTicket = 4
	keyUpdate        = 24

	updateNotRequested = 0
	updateRequested    = 1

	// maxTicket is the largest NewSessionTicket that its syntax allows.
	maxTicket = 4 + 4 + (1 + 1<<8 - 1) + (2 + 1<<16 - 1) + (2 + 1<<16 - 2)
)

// handshake deals with messages that come after the handshake. A record may have several of them,
// or a part of one.
func (c *Conn) handshake(content []byte) error {
	if len(content) == 0 {
		return c.fail(unexpectedMessage) // RFC 8446, section 5.4
	}
	c.hand = append(c.hand, content...)
	for len(c.hand) > 0 {
		typ := c.hand[0]
		if typ != keyUpdate && (typ != newSessionTicket || !c.client) {
			return c.fail(unexpectedMessage) // section 4
		}
		if len(c.hand) < msgHeader {
			return nil
		}
		size := int(binary.BigEndian.Uint32(c.hand) & 0xffffff)
		if typ == keyUpdate && size != 1 || size > maxTicket {
			return c.fail(decodeError) // section 6
		}
		if len(c.hand) < msgHeader+size {
			return nil
		}
		body := c.hand[msgHeader : msgHeader+size]
		c.hand = c.hand[msgHeader+size:]
		if typ == keyUpdate {
			if err := c.peerUpdates(body[0]); err != nil {
				return err
			}
		} else if !validTicket(body) { // otherwise ignored, as a client may (section 4.6.1)
			return c.fail(decodeError)
		}
	}
	c.hand = nil
	return nil
}

// peerUpdates deals with a KeyUpdate (RFC 8446, section 4.6.3).
func (c *Conn) peerUpdates(request byte) error {
	if len(c.hand) > 0 { // section 5.1: the key changes with a record, not within one
		return c.fail(unexpectedMessage)
	}
	if request > updateRequested {
		return c.fail(illegalParameter)
	}
	c.updates = c.updates || request == updateRequested
	c.in.update(c.suite)
	return nil
}

// update appends a KeyUpdate of our own, and goes on to the next key.
func (c *Conn) update(dst []byte) []byte {
	c.updates = false
	dst = c.out.seal(c.suite, dst, typeHandshake, []byte{keyUpdate, 0, 0, 1, updateNotRequested})
	c.out.update(c.suite)
	return dst
}

// validTicket reports whether b has the syntax of a NewSessionTicket (RFC 8446, section 4.6.1): two
// numbers of four bytes, ticket_nonce, ticket, which is not empty, and extensions.
func validTicket(b []byte) bool {
	if len(b) < 8 {
		return false
	}
	b = b[8:]
	for _, list := range []struct{ lengthSize, least int }{{1, 0}, {2, 1}, {2, 0}} {
		if len(b) < list.lengthSize {
			return false
		}
		n := int(b[0])
		if list.lengthSize == 2 {
			n = int(binary.BigEndian.Uint16(b))
		}
		if b = b[list.lengthSize:]; len(b) < n || n < list.least {
			return false
		}
		b = b[n:]
	}
	return len(b) == 0
}
