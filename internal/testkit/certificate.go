package testkit

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Certificate returns a self-signed certificate for these names and addresses, which is valid in
// real and in virtual time.
func Certificate(names ...string) tls.Certificate {
	return SelfSigned(nil, time.Unix(0, 0), time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC), names...)
}

// SelfSigned returns a certificate for these names and addresses, with its Leaf. Servers and clients
// may use it, and a pool of trusted certificates may contain it. A nil key means a new one.
func SelfSigned(key crypto.Signer, from, to time.Time, names ...string) tls.Certificate {
	if key == nil {
		key = must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	}
	template := &x509.Certificate{
		SerialNumber: must(rand.Int(rand.Reader, big.NewInt(math.MaxInt64))),
		Subject:      pkix.Name{CommonName: "loopwheel self-signed"},
		NotBefore:    from, NotAfter: to,
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		IsCA:        true, BasicConstraintsValid: true,
	}
	for _, name := range names {
		if ip := net.ParseIP(name); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, name)
		}
	}
	der := must(x509.CreateCertificate(rand.Reader, template, template, key.Public(), key))
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: must(x509.ParseCertificate(der))}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// CertificateFiles writes a certificate and its key as PEM to files, which are removed when the test
// ends. The name of the key's file is that of the certificate's with .key, as HAProxy expects.
func CertificateFiles(t testing.TB, cert tls.Certificate) (certFile, keyFile string) {
	t.Helper()
	certFile = filepath.Join(t.TempDir(), "cert.pem")
	WriteCertificate(t, cert, certFile, certFile+".key")
	return certFile, certFile + ".key"
}

// WriteCertificate is CertificateFiles with files of the caller's choice.
func WriteCertificate(t testing.TB, cert tls.Certificate, certFile, keyFile string) {
	t.Helper()
	for file, block := range map[string]*pem.Block{
		certFile: {Type: "CERTIFICATE", Bytes: cert.Certificate[0]},
		keyFile:  {Type: "PRIVATE KEY", Bytes: must(x509.MarshalPKCS8PrivateKey(cert.PrivateKey))},
	} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
