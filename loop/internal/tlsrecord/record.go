// Package tlsrecord is the part of TLS 1.3 that remains after the handshake: the record protocol,
// updates of keys, and alerts (RFC 8446, sections 5, 4.6.3 and 6). It works on bytes in memory. The
// handshake is crypto/tls'; New takes the two secrets that it ended with.
package tlsrecord

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
)

// Sizes and types of records (RFC 8446, sections 5.1 and 5.2).
const (
	headerSize = 5
	tagSize    = 16 // of each AEAD that there is
	maxPlain   = 1 << 14
	maxCipher  = maxPlain + 256

	// overhead is what a record adds to the data in it.
	overhead = headerSize + 1 + tagSize

	typeAlert       = 21
	typeHandshake   = 22
	typeApplication = 23
)

// Alerts (RFC 8446, section 6).
const (
	closeNotify       tls.AlertError = 0
	unexpectedMessage tls.AlertError = 10
	badRecordMAC      tls.AlertError = 20
	recordOverflow    tls.AlertError = 22
	illegalParameter  tls.AlertError = 47
	decodeError       tls.AlertError = 50
	userCanceled      tls.AlertError = 90

	levelWarning = 1
	levelFatal   = 2
)

const (
	// maxUseless is how many records without data may come in a row, as in crypto/tls.
	maxUseless = 16

	// Records begin small, so that the first ones can be used as soon as their packet has come, and
	// grow by firstSize each, as those of crypto/tls do: a packet of at least 1,208 bytes is sure
	// to pass. The record after the growing-th is as large as records get.
	firstSize = 1208 - overhead
	growing   = maxPlain / firstSize
)

// ErrShutdown is the error of Seal after CloseNotify or a fatal alert.
var ErrShutdown = errors.New("tls: protocol is shutdown")

var errUseless = errors.New("tls: too many records without data in a row")

// A Conn is both directions of a connection. It belongs to one goroutine. Errors and alerts are
// those of crypto/tls, with the type tls.AlertError for its unexported one.
type Conn struct {
	suite   *suite
	in, out half
	hand    []byte // the beginning of a handshake message
	err     error  // why Open reads nothing any more
	alert   tls.AlertError
	useless uint8 // records without data in a row
	grown   uint8 // records sent while they grow
	client  bool
	alerts  bool // alert is to be sent
	updates bool // the peer has asked for an update of our key
	shut    bool // close_notify, or a fatal alert, is sent
	rests   bool // no record has come or gone since Rest
}

// New returns the Conn of a server, or a client, at the end of its handshake. read and write are
// application_traffic_secret_0 of the peer and of this side (RFC 8446, section 7.1). It keeps
// copies. An error: the cipher suite is not one of TLS 1.3 that crypto/tls has, or not that of the
// secrets.
func New(client bool, cipherSuite uint16, read, write []byte) (*Conn, error) {
	s := suites[cipherSuite]
	if s == nil || len(read) != s.hashSize || len(write) != s.hashSize {
		return nil, fmt.Errorf("tlsrecord: secrets of %d and %d bytes for the cipher suite %#04x", len(read), len(write), cipherSuite)
	}
	c := &Conn{suite: s, client: client}
	c.in.set(s, read)
	c.out.set(s, write)
	return c, nil
}

// FullRecords has Seal make no small records at the beginning.
func (c *Conn) FullRecords() { c.grown = growing }

// Sent counts the records that the handshake has sent under the key of application data: session
// tickets. Those are the last ones of sent, which is what went out last, as whole records. So it
// looks for the first one of that key, from the end on.
func (c *Conn) Sent(sent []byte) {
	var starts []int
	for at := 0; at+headerSize <= len(sent); at += Size(sent[at:]) {
		starts = append(starts, at)
	}
	var scratch []byte
	for i := len(starts) - 1; i >= 0 && sent[starts[i]] == typeApplication; i-- {
		record := sent[starts[i]:]
		record = record[:Size(record)]
		if cap(scratch) < len(record) {
			scratch = make([]byte, 0, len(record))
		}
		if _, err := c.out.open(c.suite, scratch, record); err == nil {
			c.out.seq = uint64(len(starts) - i)
			return
		}
	}
}

// Size returns the size of the record that begins with header, header included.
func Size(header []byte) int { return headerSize + int(header[3])<<8 + int(header[4]) }

// Open appends the data in a record to dst. There must be no overlap, or dst must be record[5:5].
// It uses the capacity of dst, and writes beyond the data that it returns. A record of a size that
// is not allowed may lack its end.
//
// io.EOF: the peer has sent close_notify. Other errors end the connection, too, and what comes
// behind does not count: Open returns the same error again. Alert then has what says why.
func (c *Conn) Open(dst, record []byte) ([]byte, error) {
	if c.err != nil {
		return dst, c.err // RFC 8446, section 6.1: data after the closure alert is ignored
	}
	if record[0] != typeApplication {
		return dst, c.fail(unexpectedMessage) // section 5
	}
	if n := Size(record) - headerSize; n > maxCipher { // section 5.2
		err := tls.RecordHeaderError{Msg: fmt.Sprintf("oversized record received with length %d", n)}
		copy(err.RecordHeader[:], record)
		return dst, c.failWith(recordOverflow, err)
	}
	c.rests = false
	inner, err := c.in.open(c.suite, dst, record)
	if err != nil {
		return dst, c.fail(badRecordMAC) // section 5.2
	}
	if len(inner)-len(dst) > maxPlain+1 {
		return dst, c.fail(recordOverflow) // section 5.4
	}
	end := len(inner) - 1
	for end >= len(dst) && inner[end] == 0 {
		end--
	}
	if end < len(dst) { // nothing but padding (section 5.4)
		return dst, c.fail(unexpectedMessage)
	}
	content, typ := inner[len(dst):end], inner[end]
	switch {
	case typ == typeHandshake:
		err = c.handshake(content)
	case len(c.hand) > 0: // section 5.1: nothing comes between the parts of a message
		err = c.fail(unexpectedMessage)
	case typ == typeAlert:
		err = c.alerted(content)
	case typ != typeApplication: // change_cipher_spec, too (section 5)
		err = c.fail(unexpectedMessage)
	case len(content) > 0:
		c.useless = 0
		return inner[:end], nil
	}
	if err != nil {
		return dst, err
	}
	if c.useless++; c.useless > maxUseless {
		return dst, c.failWith(unexpectedMessage, errUseless)
	}
	return dst, nil
}

// fail ends the connection with an alert.
func (c *Conn) fail(a tls.AlertError) error {
	return c.failWith(a, &net.OpError{Op: "local error", Err: a})
}

func (c *Conn) failWith(a tls.AlertError, err error) error {
	c.alert, c.alerts, c.err = a, true, err
	return err
}

// Refuse ends the connection for a reason of the caller's, which Open returns from now on. Alert
// has unexpected_message.
func (c *Conn) Refuse(reason error) error { return c.failWith(unexpectedMessage, reason) }

// alerted deals with an alert of the peer's. All but two are fatal, whatever level they claim to
// have (RFC 8446, section 6).
func (c *Conn) alerted(content []byte) error {
	switch {
	case len(content) == 0: // section 5.4
		return c.fail(unexpectedMessage)
	case len(content) != 2: // sections 5.1 and 6
		return c.fail(decodeError)
	case tls.AlertError(content[1]) == userCanceled: // close_notify should follow (section 6.1)
		return nil
	case tls.AlertError(content[1]) == closeNotify:
		c.err = io.EOF
	default:
		c.err = &net.OpError{Op: "remote error", Err: tls.AlertError(content[1])}
		c.shut = true // section 6.2: nothing is sent any more
	}
	return c.err
}

// Seal appends the records of data to dst, and before them what Alert would. The first data after
// the peer has asked for an update of the key comes behind that update, one for all that came since
// (RFC 8446, section 4.6.3).
func (c *Conn) Seal(dst, data []byte) ([]byte, error) {
	dst = c.Alert(dst)
	if c.shut {
		return dst, ErrShutdown
	}
	c.rests = false
	for len(data) > 0 {
		if c.updates || c.out.seq >= c.suite.limit-2 { // the update is a record, too, and so is an alert
			dst = c.update(dst)
		}
		n := min(len(data), maxPlain)
		if c.grown < growing {
			c.grown++
			n = min(n, firstSize*int(c.grown))
		}
		dst = c.out.seal(c.suite, dst, typeApplication, data[:n])
		data = data[n:]
	}
	return dst, nil
}

// Alert appends the alert for the error that Open has returned. It must be called after an error,
// and needs at most 24 bytes.
func (c *Conn) Alert(dst []byte) []byte {
	if c.shut || !c.alerts {
		return dst
	}
	c.shut = true
	return c.out.seal(c.suite, dst, typeAlert, []byte{levelFatal, byte(c.alert)})
}

// CloseNotify appends the alert that says that no data follows (RFC 8446, section 6.1), unless that
// was said, or a fatal alert.
func (c *Conn) CloseNotify(dst []byte) []byte {
	dst = c.Alert(dst)
	if c.shut {
		return dst
	}
	c.shut = true
	return c.out.seal(c.suite, dst, typeAlert, []byte{levelWarning, byte(closeNotify)})
}

// Rest is called now and then. If no record was opened or sealed since the last call, it drops what
// the next one can make again, and reports that.
func (c *Conn) Rest() bool {
	if c.rests {
		c.in.aead, c.out.aead = nil, nil
		return true
	}
	c.rests = true
	return false
}

// Erase makes the secrets unreadable, as far as they are in c. The AEADs of package cipher keep
// their keys until they are collected. c must not be used any more.
func (c *Conn) Erase() {
	clear(c.hand)
	*c = Conn{}
}
