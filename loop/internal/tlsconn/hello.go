package tlsconn

// maxHello is how large a ClientHello may be, with its records' headers. crypto/tls takes a message
// of 64 KiB. Most have 200 bytes to 5 KiB; one that resumes a session carries a ticket, in which a
// client's whole chain of certificates may be.
const maxHello = 64<<10 + 1<<10

// crypto/tls keeps the buffer in which it reads records as long as the connection lives: its size
// is that of the largest record so far and 512 bytes, or twice what it was before. So a ClientHello
// is given to it in small records, of which the first makes the buffer as large as firstPart and
// headerSize and 512. From 1,152 bytes on it grows to 20 KiB by doubling, if the peer's records
// become larger little by little (as those of crypto/tls do), where from 2 KiB on it would grow to
// 32 KiB.
const (
	readBuffer = 1152
	firstPart  = readBuffer - 512 - headerSize
	laterPart  = readBuffer - headerSize
)

// splitHello cuts the ClientHello in the first n bytes of c.in into records of a size that is of
// use to us, and returns its size after that. A handshake means the same wherever its records are
// cut (RFC 8446, section 5.1).
func (c *Conn) splitHello(n int) int {
	b := c.in
	if b[0] != typeHandshake || recordSize(b) != n || n <= headerSize+firstPart {
		return n
	}
	head, message, rest := b[:headerSize], b[headerSize:n], b[n:]
	out := c.loop.get(len(b) + headerSize*(1+len(message)/laterPart))
	for part := firstPart; len(message) > 0; part = laterPart {
		part = min(part, len(message))
		out = append(out, head[0], head[1], head[2], byte(part>>8), byte(part))
		out = append(out, message[:part]...)
		message = message[part:]
	}
	size := len(out)
	c.in = append(out, rest...)
	c.loop.put(b)
	return size
}

// helloReady returns how much of b crypto/tls must be given to deal with a ClientHello: 0 if more
// must come first. Other bytes are ready at once: crypto/tls finds the words for them.
func helloReady(b []byte) int {
	need, got, done := -1, 0, 0 // bytes of the message, of which we have seen, in bytes of records
	for {
		rest := b[done:]
		if len(rest) > 0 && rest[0] != typeHandshake || len(rest) > 1 && rest[1] != majorVersion {
			return notTLS(b)
		}
		n := recordSize(rest)
		if n > maxRecord {
			return len(b)
		}
		if n == 0 || n > len(rest) {
			return 0
		}
		payload := rest[headerSize:n]
		if need < 0 {
			if len(payload) < 4 || payload[0] != 1 {
				return len(b)
			}
			need = 4 + int(payload[1])<<16 + int(payload[2])<<8 + int(payload[3])
		}
		got += len(payload)
		done += n
		if got >= need {
			return done
		}
	}
}

// notTLS returns how much of b is ready if it does not begin with a handshake's record: crypto/tls
// looks at a header.
func notTLS(b []byte) int {
	if len(b) < headerSize {
		return 0
	}
	return len(b)
}
