package loop

import (
	"encoding/binary"

	"github.com/loopwheel/loopwheel/loop/internal/outbox"
	"github.com/loopwheel/loopwheel/loop/internal/tlsconn"
)

// large is the size from which on a message is offered to the socket at once: to copy it costs more
// than a write of its own. Over TLS that is a full record, which crypto/tls hands over by itself.
const (
	large    = outbox.MaxTail
	largeTLS = 16 << 10
)

// pieces are what a loop writes a large message in, without an allocation.
type pieces struct {
	head [plainHead]byte
	bufs [2][]byte
}

// takesNow reports whether a message of n bytes is large and may be written before the turn ends:
// nothing waits that must be written before it.
func (c *Conn) takesNow(n int) bool {
	if c.out.box != nil || c.sock == nil || !c.isOpen() {
		return false
	}
	_, tls := c.sock.(*tlsconn.Conn)
	return tls || n >= large
}

// sendNow writes msg as a plain frame; see writeNow.
func (c *Conn) sendNow(msg []byte) error {
	head := c.loop.pieces.head[:]
	binary.BigEndian.PutUint32(head, uint32(len(msg)))
	return c.writeNow(head, msg)
}

// writeNow writes what the socket takes of head and body, and copies only the rest to the output.
func (c *Conn) writeNow(head, body []byte) error {
	l := c.loop
	bufs := l.pieces.bufs[:]
	bufs[0], bufs[1] = head, body
	n, err := c.sock.Writev(bufs)
	clear(bufs)
	if err != nil {
		c.breakOff(err)
		return ErrClosed
	}
	c.touch()
	if n > 0 {
		c.wrote(n)
	}
	if n == len(head)+len(body) {
		return nil
	}
	rest := c.space(len(head) + len(body) - n)
	if n < len(head) {
		rest = append(rest, head[n:]...)
	}
	c.appended(append(rest, body[max(0, n-len(head)):]...))
	return nil
}
