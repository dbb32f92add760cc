package tlsconn

// Sizes of TLS records (RFC 8446, section 5; RFC 5246, section 6.2).
const (
	headerSize = 5
	maxPlain   = 16384
	maxCipher  = maxPlain + 2048 // of TLS 1.2; 1.3 adds 256 at most
	maxRecord  = headerSize + maxCipher

	majorVersion = 3 // of all that is called TLS

	typeHandshake   = 22
	typeApplication = 23
)

// recordSize returns the size of the record that b begins with, or 0 if b does not say.
func recordSize(b []byte) int {
	if len(b) < headerSize {
		return 0
	}
	return headerSize + int(b[3])<<8 + int(b[4])
}

// decidable returns how much of b is enough for crypto/tls to go on with, if n is the size of the
// record that b begins with: all of it, or, of one that is too large, what crypto/tls needs to
// refuse it.
func decidable(n int) int {
	if n > maxRecord {
		return headerSize
	}
	return n
}

// wholeRecords returns the length of the whole records at the beginning of b.
func wholeRecords(b []byte) int {
	done := 0
	for {
		n := recordSize(b[done:])
		if n == 0 || decidable(n) > len(b)-done {
			return done
		}
		if n > maxRecord { // the last that crypto/tls will look at
			return len(b)
		}
		done += n
	}
}

// handshakeReady returns how much of b crypto/tls can go on with in a handshake: whole records, or
// what does not begin like a record, which it refuses for its header.
func handshakeReady(b []byte) int {
	n := wholeRecords(b)
	if n == 0 && len(b) >= headerSize && b[1] != majorVersion {
		return len(b)
	}
	return n
}

// sealed reports whether the server's output b has records that are encrypted. In a handshake that
// is so from the ServerHello of TLS 1.3 on, and all the server waits for then are Finished and what
// it asked for.
func sealed(b []byte) bool {
	for len(b) >= headerSize {
		if b[0] == typeApplication {
			return true
		}
		b = b[min(len(b), recordSize(b)):]
	}
	return false
}
