package loop_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/smtp"
	"strings"
	"testing"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/internal/rig"
	"github.com/loopwheel/loopwheel/loop"
)

// A dialogue is what a protocol has before TLS: a greeting, and answers, each to what ends like
// this. TLS comes after the last one.
type dialogue struct {
	greeting string
	steps    [][2]string
}

// dialogues are by the names that openssl has for them.
var dialogues = map[string]dialogue{
	"smtp": {"220 test ESMTP\r\n", [][2]string{{"EHLO mail.example.com\r\n", "250-test\r\n250 STARTTLS\r\n"}, {"STARTTLS\r\n", "220 ready\r\n"}}},
	"pop3": {"+OK\r\n", [][2]string{{"STLS\r\n", "+OK\r\n"}}},
	"imap": {"* OK\r\n", [][2]string{{". CAPABILITY\r\n", "* CAPABILITY IMAP4rev1 STARTTLS\r\n. OK\r\n"}, {". STARTTLS\r\n", ". OK\r\n"}}},
	"ftp":  {"220 test\r\n", [][2]string{{"AUTH TLS\r\n", "234 AUTH TLS\r\n"}}},
	"xmpp": {"", [][2]string{
		{"version='1.0'>", "<stream:features><starttls xmlns='urn:ietf:params:xml:ns:xmpp-tls'/></stream:features>"},
		{"<starttls xmlns='urn:ietf:params:xml:ns:xmpp-tls'/>", "<proceed xmlns='urn:ietf:params:xml:ns:xmpp-tls'/>"},
	}},
	"postgres": {"", [][2]string{{"\x00\x00\x00\x08\x04\xd2\x16\x2f", "S"}}},
	"mysql":    {mysqlGreeting, [][2]string{{"\x21" + strings.Repeat("\x00", 23), ""}}},
	"ldap":     {"", [][2]string{{"1.3.6.1.4.1.1466.20037", "\x30\x0c\x02\x01\x01\x78\x07\x0a\x01\x00\x04\x00\x04\x00"}}},
}

// mysqlGreeting is a packet of MySQL's protocol, version 10, by which a server says that it can
// speak TLS.
const mysqlGreeting = "\x49\x00\x00\x00\x0a" + "8.0.0\x00" + "\x01\x00\x00\x00" + "12345678\x00" + "\xff\xff\x21\x02\x00\xff\xff\x15" +
	"\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00" + "123456789012\x00" + "mysql_native_password\x00"

// accept returns the Handler that goes through d, byte by byte, as some clients do not wait for an
// answer, and then says back a line, and by what it came.
func (d dialogue) accept(c *loop.Conn) loop.Handler {
	_, _ = c.Write([]byte(d.greeting))
	heard, step := "", 0
	return loop.HandlerFunc(func(c *loop.Conn, msg []byte) error {
		if st, ok := c.TLS(); ok {
			defer c.Close()
			return c.Send(fmt.Append(nil, string(msg), " by ", tls.VersionName(st.Version)))
		}
		heard += string(msg)
		if !strings.HasSuffix(heard, d.steps[step][0]) {
			return nil
		}
		_, _ = c.Write([]byte(d.steps[step][1]))
		heard = ""
		if step++; step < len(d.steps) {
			return nil
		}
		return c.StartTLS(serverTLS(), func() { c.SetCodec(codec.Lines{}) })
	})
}

// The clients of those who wrote OpenSSL get as far as TLS by each protocol that has a way there.
func TestStartTLSOfOpenSSL(t *testing.T) {
	openssl := tool(t, "openssl")
	cert, _ := pemFiles(t)
	for protocol, d := range dialogues {
		t.Run(protocol, func(t *testing.T) {
			srv := &loop.Server{Codec: codec.Fixed{Size: 1}, Accept: d.accept}
			startPlain(t, srv)
			out := askOpenSSL(t, openssl, []string{"s_client", "-connect", srv.LocalAddr().String(), "-starttls", protocol,
				"-CAfile", cert, "-servername", "test", "-verify_return_error", "-ign_eof"})
			if !strings.Contains(out, "hello by TLS 1.3") {
				t.Errorf("openssl says\n%s", out)
			}
		})
	}
}

// Go's own client delivers a mail.
func TestStartTLSOfNetSMTP(t *testing.T) {
	var got []string
	srv := &loop.Server{Codec: codec.Lines{}, Accept: func(c *loop.Conn) loop.Handler {
		_ = c.Send([]byte("220 test"))
		return loop.HandlerFunc(func(c *loop.Conn, line []byte) error {
			_, secure := c.TLS()
			got = append(got, fmt.Sprint(secure, " ", string(line)))
			switch verb, _, _ := strings.Cut(string(line), " "); {
			case verb == "EHLO" && !secure:
				_, err := c.Write([]byte("250-test\r\n250 STARTTLS\r\n"))
				return err
			case verb == "STARTTLS":
				_ = c.Send([]byte("220 ready"))
				return c.StartTLS(serverTLS(), nil)
			case verb == "QUIT":
				_ = c.Send([]byte("221 bye"))
				c.Close()
				return nil
			}
			return c.Send([]byte("250 ok"))
		})
	}}
	startPlain(t, srv)
	client, err := smtp.NewClient(dialPlain(t, srv.LocalAddr()), "test")
	if err == nil {
		err = client.StartTLS(clientTLS())
	}
	if err == nil {
		err = client.Mail("ada@test")
	}
	if err == nil {
		err = client.Quit()
	}
	if err != nil {
		t.Fatal(err)
	}
	want := "false EHLO localhost, false STARTTLS, true EHLO localhost, true MAIL FROM:<ada@test>, true QUIT"
	rig.HasConns(t, srv, 0)
	if all := strings.Join(got, ", "); all != want {
		t.Errorf("the server got %s", all)
	}
}

// startPlain runs srv until the test ends.
func startPlain(t *testing.T, srv *loop.Server) {
	t.Helper()
	srv.Addr = "tcp://127.0.0.1:0"
	startWith(t, context.Background(), srv)
}
