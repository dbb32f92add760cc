package loop

import "bytes"

const (
	// poisonText is what bytes become that were lent, over and over: who keeps them sees it.
	poisonText = "LENT NO LONGER. "

	// poisonRing is how many bytes of messages are lent before memory is used again.
	poisonRing = 64 << 10
)

// A lender lends messages as copies, which it overwrites when they are lent no longer. A copy is
// overwritten whatever the codec made the message of: the loop's buffer, its own, or a constant.
type lender struct {
	ring []byte
	at   int
}

// lend returns a copy of msg.
func (l *lender) lend(msg []byte) []byte {
	n := len(msg)
	if n > poisonRing/4 {
		return bytes.Clone(msg)
	}
	if l.ring == nil {
		l.ring = make([]byte, poisonRing)
	}
	if l.at+n > len(l.ring) {
		l.at = 0
	}
	lent := l.ring[l.at : l.at+n : l.at+n]
	l.at += n
	copy(lent, msg)
	return lent
}

// deliver has the handler take a datagram.
func (c *Conn) deliver(msg []byte) error {
	if c.loop.poisons {
		return c.deliverLent(msg)
	}
	return c.handler.OnMessage(c, msg)
}

// deliverLent is deliver for Server.Poison.
func (c *Conn) deliverLent(msg []byte) error {
	lent := c.loop.lender.lend(msg)
	defer func() {
		for n := 0; n < len(lent); {
			n += copy(lent[n:], poisonText)
		}
	}()
	return c.handler.OnMessage(c, lent)
}
