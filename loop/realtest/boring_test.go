package realtest_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/loop"
)

// BoringSSL's test runner speaks TLS by hand, rightly and wrongly, with a program that it starts
// for each of its cases: here with a child of this test, boringChild, which is a Server or a
// Dialer. LOOPWHEEL_BORINGSSL is the runner, compiled by go test -c. Of its cases those run that
// are about what comes after the handshake, records and alerts. Cases that are left out, and why,
// are in testdata/boringssl.json.
func TestBoringSSL(t *testing.T) {
	runner := os.Getenv("LOOPWHEEL_BORINGSSL")
	if runner == "" {
		t.Skip("LOOPWHEEL_BORINGSSL is not set; .ci/nightly builds the runner")
	}
	config, err := filepath.Abs("testdata/boringssl.json")
	if err != nil {
		t.Fatal(err)
	}
	shim, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), runner, "-shim-path="+shim, "-shim-config="+config, "-loose-errors", "-num-workers=4", "-pipe", "-test="+boringCases)
	cmd.Dir = filepath.Dir(runner)
	cmd.Env = append(os.Environ(), childEnv+"=boring")
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Errorf("the runner ends with %v, want all cases to pass", err)
	}
}

const boringCases = "*KeyUpdate*;AppData*;*Alert*;SendEmptyRecords*;SendInvalidRecordType;*BadRecord;*LargeRecord;" +
	"TLS13-*Record*;TLS13-OnlyPadding*;Large*;CheckRecordVersion-*;*ChangeCipherSpec*;Shutdown-*;" +
	"Unclean-Shutdown*;ExtraHandshake*;SendHalfHelloRequest*;*PostHandshake*;*Ticket*-TLS13*;" +
	"TrailingDataWithFinished-*TLS13;WrongMessageType-TLS13*;BadFinished*;Garbage*;MaxSendFragment*;" +
	"Renegotiate-*TLS13*"

// exitUnimplemented says that a case has a flag that the shim does not know.
const exitUnimplemented = 89

// boringChild is one end of a case, as its flags say. It answers with each byte inverted, and ends
// with an error unless the peer's end is in order.
func boringChild() {
	f := flag.NewFlagSet("boring", flag.ContinueOnError)
	f.SetOutput(io.Discard)
	port, id := f.String("port", "", ""), f.Uint64("shim-id", 0, "")
	ipv6, server, handshaker := f.Bool("ipv6", false, ""), f.Bool("server", false, ""), f.Bool("is-handshaker-supported", false, "")
	writesFirst, resumes := f.Bool("shim-writes-first", false, ""), f.Int("resume-count", 0, "")
	key, cert, trust := f.String("key-file", "", ""), f.String("cert-file", "", ""), f.String("trust-cert", "", "")
	least, most, version := f.Int("min-version", tls.VersionTLS10, ""), f.Int("max-version", tls.VersionTLS13, ""), f.Int("expect-version", 0, "")
	not13 := f.Bool("no-tls13", false, "")
	anyCert, verify := f.Bool("require-any-client-certificate", false, ""), f.Bool("verify-peer", false, "")
	shutsDown := f.Bool("shim-shuts-down", false, "")
	for _, name := range strings.Fields("async check-close-notify use-custom-verify-callback no-op-extra-handshake renegotiate-freely renegotiate-ignore") {
		f.Bool(name, false, "") // the loop does so anyway, or the flag is about BoringSSL's interface
	}
	if err := f.Parse(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(exitUnimplemented)
	}
	if *handshaker {
		fmt.Println("No")
		return
	}
	cfg := &tls.Config{ServerName: "test", MinVersion: uint16(max(*least, tls.VersionTLS10)), MaxVersion: uint16(*most)}
	if *not13 {
		cfg.MaxVersion = tls.VersionTLS12
	}
	for _, s := range append(tls.CipherSuites(), tls.InsecureCipherSuites()...) {
		cfg.CipherSuites = append(cfg.CipherSuites, s.ID)
	}
	if *cert != "" {
		pair, err := tls.LoadX509KeyPair(*cert, *key)
		boring(err)
		cfg.Certificates = []tls.Certificate{pair}
	}
	if *trust != "" {
		pem, err := os.ReadFile(*trust)
		boring(err)
		cfg.RootCAs = x509.NewCertPool()
		cfg.RootCAs.AppendCertsFromPEM(pem)
		cfg.ClientCAs = cfg.RootCAs
	}
	if *anyCert {
		cfg.ClientAuth = tls.RequireAnyClientCert
	} else if *verify {
		cfg.ClientAuth = tls.VerifyClientCertIfGiven
	}
	if *resumes > 0 {
		cfg.ClientSessionCache = tls.NewLRUClientSessionCache(1)
	}
	address := net.JoinHostPort(map[bool]string{false: "127.0.0.1", true: "::1"}[*ipv6], *port)
	srv := &loop.Server{NumLoops: 1, Accept: func(*loop.Conn) loop.Handler { return nil }}
	boring(srv.Start(context.Background()))
	for i := range *resumes + 1 {
		b := &boringEnd{first: *writesFirst && i == 0, shuts: *shutsDown, version: uint16(*version), ended: make(chan error, 1)}
		hello := binary.LittleEndian.AppendUint64(nil, *id)
		if *server {
			nc, err := net.Dial("tcp", address)
			boring(err)
			_, err = nc.Write(hello)
			boring(err)
			boring(srv.Adopt(nc, nil, loop.Listener{TLS: cfg, Codec: codec.Raw{}, Accept: b.opened}))
		} else {
			loop.Dialer{Codec: codec.Raw{}}.Dial(srv.Loops()[0], "tcp://"+address, func(c *loop.Conn, err error) loop.Handler {
				if err == nil {
					_, _ = c.Write(hello)
					err = c.StartTLS(cfg, func() { b.opened(c) })
				}
				if err != nil {
					b.ended <- err
				}
				return b
			})
		}
		err := b.wait(srv)
		if !errors.Is(err, io.EOF) {
			_ = srv.Shutdown(context.Background()) // which waits until the peer has read the alert
			boring(fmt.Errorf("connection %d: %w", i, err))
		}
	}
	boring(srv.Shutdown(context.Background()))
}

// A boringEnd is the Handler of boringChild.
type boringEnd struct {
	first   bool // it writes before it has read
	shuts   bool // it ends its output at once
	version uint16
	ended   chan error
}

func (b *boringEnd) opened(c *loop.Conn) loop.Handler {
	if b.first {
		_, _ = c.Write([]byte("hello"))
	}
	if b.shuts {
		c.CloseWrite()
	}
	if s, _ := c.TLS(); b.version != 0 && s.Version != b.version {
		b.ended <- fmt.Errorf("version %#x, want %#x", s.Version, b.version)
	}
	return b
}

func (b *boringEnd) OnMessage(c *loop.Conn, msg []byte) error {
	for i := range msg {
		msg[i] ^= 0xff
	}
	return c.Send(msg)
}

func (b *boringEnd) OnClose(_ *loop.Conn, err error) {
	select {
	case b.ended <- err:
	default:
	}
}

// wait returns why the connection has ended. No Handler hears of a server's handshake that fails.
func (b *boringEnd) wait(srv *loop.Server) error {
	for {
		select {
		case err := <-b.ended:
			return err
		case <-time.After(5 * time.Millisecond):
			if st := srv.Stats(); st.HandshakesFailed > 0 {
				return errors.New("the handshake has failed")
			}
		}
	}
}

// boring ends the child.
func boring(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
