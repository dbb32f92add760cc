package tlsconn

import (
	"crypto/tls"
	"errors"
	"fmt"
)

// explain says what crypto/tls means, and for whom. The error may be a hook's, whose methods are
// user code: they may panic, as those of a typed nil do.
func (l *Loop) explain(err error) (told error) {
	defer func() {
		if v := recover(); v != nil {
			told = fmt.Errorf("TLS handshake: %w", l.cfg.Panicked(v))
		}
	}()
	var header tls.RecordHeaderError
	if errors.As(err, &header) {
		return noHandshake(header)
	}
	return fmt.Errorf("TLS handshake: %w", err)
}

// noHandshake says what a client speaks that does not begin with a handshake.
func noHandshake(header tls.RecordHeaderError) error {
	switch text := string(header.RecordHeader[:]); {
	case isHTTP(text):
		return errors.New("TLS handshake: the client speaks plain HTTP")
	case text == "PROXY" || text == "\r\n\r\n\x00":
		return errors.New("TLS handshake: the client sends a header of the PROXY protocol, and nobody expects it")
	}
	return fmt.Errorf("TLS handshake: %s", header.Msg)
}

func isHTTP(start string) bool {
	switch start {
	case "GET /", "HEAD ", "POST ", "PUT /", "OPTIO", "DELET", "PATCH", "CONNE", "TRACE":
		return true
	}
	return false
}
