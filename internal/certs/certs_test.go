package certs

import (
	"crypto/tls"
	"crypto/x509"
	"flag"
	"path/filepath"
	"strings"
	"testing"

	"github.com/loopwheel/loopwheel/internal/selfsigned"
)

func parse(t *testing.T, args ...string) (*tls.Config, error) {
	t.Helper()
	var f Flags
	fs := flag.NewFlagSet("test", flag.ContinueOnError)
	f.Register(fs)
	if err := fs.Parse(args); err != nil {
		t.Fatal(err)
	}
	return f.Config()
}

func TestPlain(t *testing.T) {
	if cfg, err := parse(t); cfg != nil || err != nil {
		t.Errorf("%v, %v, want neither", cfg, err)
	}
}

func TestSelfSigned(t *testing.T) {
	cfg, err := parse(t, "-tls")
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(cfg.Certificates[0].Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	for _, host := range []string{"localhost", "127.0.0.1", "::1"} {
		if err := cert.VerifyHostname(host); err != nil {
			t.Error(err)
		}
	}
}

func TestFiles(t *testing.T) {
	pair, err := selfSigned()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	if err := selfsigned.WriteFiles(pair, cert, key); err != nil {
		t.Fatal(err)
	}
	if cfg, err := parse(t, "-tls-cert", cert, "-tls-key", key); err != nil || len(cfg.Certificates) != 1 {
		t.Errorf("%v, %v", cfg, err)
	}
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"-tls-cert", cert}, "go together"},
		{[]string{"-tls-key", key}, "go together"},
		{[]string{"-tls", "-tls-cert", cert, "-tls-key", key}, "leave it out"},
		{[]string{"-tls-cert", dir + "/none", "-tls-key", key}, "no such file"},
		{[]string{"-tls-cert", key, "-tls-key", key}, "PEM"},
	} {
		if cfg, err := parse(t, tt.args...); cfg != nil || err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%v: %v, %v, want an error with %q", tt.args, cfg, err, tt.want)
		}
	}
}
