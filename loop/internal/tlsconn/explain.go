package tlsconn

import (
	"crypto/tls"
	"errors"
)

// explain says what a peer speaks that does not begin with a handshake. The error may be a hook's,
// whose methods are user code.
func explain(err error) error {
	header, ok := errors.AsType[tls.RecordHeaderError](err)
	if !ok {
		return err
	}
	switch text := string(header.RecordHeader[:]); text {
	case "GET /", "HEAD ", "POST ", "PUT /", "OPTIO", "DELET", "PATCH", "CONNE", "TRACE":
		return errors.New("the client speaks plain HTTP")
	case "PROXY", "\r\n\r\n\x00":
		return errors.New("the client sends a header of the PROXY protocol, and nobody expects it")
	}
	return errors.New(header.Msg)
}
