package selfsigned

import (
	"crypto/tls"
	"crypto/x509"
	"path/filepath"
	"testing"
	"time"
)

func TestCertificate(t *testing.T) {
	from := time.Unix(1e9, 0)
	pair, err := New(from, from.Add(time.Hour), "localhost", "127.0.0.1", "::1")
	if err != nil {
		t.Fatal(err)
	}
	trust := x509.NewCertPool()
	trust.AddCert(pair.Leaf)
	for _, name := range []string{"localhost", "127.0.0.1", "::1"} {
		for _, use := range []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth} {
			opts := x509.VerifyOptions{Roots: trust, DNSName: name, CurrentTime: from.Add(time.Minute), KeyUsages: []x509.ExtKeyUsage{use}}
			if _, err := pair.Leaf.Verify(opts); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			opts.CurrentTime = from.Add(2 * time.Hour)
			if _, err := pair.Leaf.Verify(opts); err == nil {
				t.Error("it does not expire")
			}
		}
	}
	other, err := New(from, from.Add(time.Hour))
	if err != nil || other.Leaf.SerialNumber.Cmp(pair.Leaf.SerialNumber) == 0 {
		t.Errorf("two have one serial number, or %v", err)
	}
}

func TestWriteFiles(t *testing.T) {
	pair, err := New(time.Unix(0, 0), time.Unix(1, 0))
	if err != nil {
		t.Fatal(err)
	}
	cert, key := filepath.Join(t.TempDir(), "cert.pem"), filepath.Join(t.TempDir(), "key.pem")
	if err := WriteFiles(pair, cert, key); err != nil {
		t.Fatal(err)
	}
	back, err := tls.LoadX509KeyPair(cert, key)
	if err != nil || !back.Leaf.Equal(pair.Leaf) {
		t.Errorf("not what was written, or %v", err)
	}
}
