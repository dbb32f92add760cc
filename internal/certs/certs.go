// Package certs is the flags by which the examples are told to speak TLS.
package certs

import (
	"crypto/tls"
	"errors"
	"flag"
	"time"

	"github.com/loopwheel/loopwheel/internal/selfsigned"
)

// Flags are what the command line says.
type Flags struct {
	cert, key  string
	selfSigned bool
}

// Register adds -tls-cert, -tls-key and -tls to fs.
func (f *Flags) Register(fs *flag.FlagSet) {
	fs.StringVar(&f.cert, "tls-cert", "", "speak TLS with the certificate in this `file` (PEM)")
	fs.StringVar(&f.key, "tls-key", "", "and its key in this `file` (PEM)")
	fs.BoolVar(&f.selfSigned, "tls", false, "speak TLS with a certificate made on the spot, which nobody trusts")
}

// Config returns what the flags ask for, or nil for none.
func (f *Flags) Config() (*tls.Config, error) {
	var pair tls.Certificate
	var err error
	switch {
	case (f.cert == "") != (f.key == ""):
		return nil, errors.New("-tls-cert and -tls-key go together")
	case f.cert != "" && f.selfSigned:
		return nil, errors.New("-tls makes a certificate: leave it out with -tls-cert")
	case f.cert != "":
		pair, err = tls.LoadX509KeyPair(f.cert, f.key)
	case f.selfSigned:
		pair, err = selfSigned()
	default:
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return &tls.Config{Certificates: []tls.Certificate{pair}}, nil
}

// selfSigned makes a certificate for this machine, valid for a day. Clients must be told to trust
// it: it is for trying things out.
func selfSigned() (tls.Certificate, error) {
	now := time.Now()
	return selfsigned.New(now.Add(-time.Minute), now.Add(24*time.Hour), "localhost", "127.0.0.1", "::1")
}
