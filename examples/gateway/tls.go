package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"math/big"
	"time"
)

// tlsConfig returns what the flags ask for; nil means plain. A process that replaces this one reads
// the files anew.
func tlsConfig(certFile, keyFile string, make bool) (*tls.Config, error) {
	var pair tls.Certificate
	var err error
	switch {
	case (certFile == "") != (keyFile == "") || make && certFile != "":
		err = errors.New("-tls-cert and -tls-key go together, and without -tls")
	case certFile != "":
		pair, err = tls.LoadX509KeyPair(certFile, keyFile)
	case make:
		pair, err = selfSigned()
	default:
		return nil, nil
	}
	return &tls.Config{Certificates: []tls.Certificate{pair}}, err
}

// selfSigned makes a certificate for this machine that is valid for a day.
func selfSigned() (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()), DNSNames: []string{"localhost"},
		NotBefore: now.Add(-time.Minute), NotAfter: now.Add(24 * time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, err
}
