package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"math/big"
	"net"
	"time"
)

// tlsConfig returns what the flags ask for, or nil for none.
func (o *options) tlsConfig() (*tls.Config, error) {
	switch {
	case (o.cert == "") != (o.key == ""):
		return nil, errors.New("-tls-cert and -tls-key go together")
	case o.cert != "":
		pair, err := tls.LoadX509KeyPair(o.cert, o.key)
		return &tls.Config{Certificates: []tls.Certificate{pair}}, err
	case o.selfSigned:
		pair, err := selfSigned()
		return &tls.Config{Certificates: []tls.Certificate{pair}}, err
	}
	return nil, nil
}

// selfSigned makes a certificate for this machine, valid for a day. Clients must be told to trust
// it: it is for trying things out.
func selfSigned() (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()),
		Subject:      pkix.Name{CommonName: "loopwheel example"},
		DNSNames:     []string{"localhost"},
		IPAddresses:  []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
		NotBefore:    now.Add(-time.Minute),
		NotAfter:     now.Add(24 * time.Hour),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, err
}
