package loop_test

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/smtp"
	"strings"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/looptest"
)

// A mailSession is one connection of a server that takes mail only by TLS.
type mailSession struct{ cfg *tls.Config }

func (s *mailSession) OnMessage(c *loop.Conn, line []byte) error {
	_, secure := c.TLS()
	fmt.Printf("TLS %-5v  %s\n", secure, line)
	switch verb, _, _ := strings.Cut(string(line), " "); {
	case verb == "EHLO" && secure:
		return c.Send([]byte("250 mail.test"))
	case verb == "EHLO":
		_ = c.Send([]byte("250-mail.test"))
		return c.Send([]byte("250 STARTTLS"))
	case verb == "STARTTLS" && secure:
		return c.Send([]byte("503 TLS is on"))
	case verb == "STARTTLS":
		_ = c.Send([]byte("220 go ahead")) // the last that goes out in plain text
		return c.StartTLS(s.cfg, nil)
	case verb == "QUIT":
		_ = c.Send([]byte("221 bye"))
		c.Close()
		return nil
	case !secure:
		return c.Send([]byte("530 STARTTLS first"))
	}
	return c.Send([]byte("250 ok"))
}

func (*mailSession) OnClose(*loop.Conn, error) {}

// A server of SMTP whose clients turn to TLS before they deliver. What comes behind STARTTLS in plain
// text, whoever has put it there, is never a command.
func ExampleConn_StartTLS() {
	cert := looptest.Certificate("mail.test")
	cfg := &tls.Config{Certificates: []tls.Certificate{cert}}
	conn, stop := serve(&loop.Server{Codec: codec.Lines{}, Accept: func(c *loop.Conn) loop.Handler {
		_ = c.Send([]byte("220 mail.test"))
		return &mailSession{cfg: cfg}
	}})
	defer stop()
	trusted := x509.NewCertPool()
	trusted.AddCert(cert.Leaf)

	client, err := smtp.NewClient(conn, "mail.test") // Go's own
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(client.Mail("ada@mail.test"))
	if err := client.StartTLS(&tls.Config{RootCAs: trusted, ServerName: "mail.test"}); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(client.Mail("ada@mail.test"))
	fmt.Println(client.Quit())
	// Output:
	// TLS false  EHLO localhost
	// TLS false  MAIL FROM:<ada@mail.test>
	// 530 STARTTLS first
	// TLS false  STARTTLS
	// TLS true   EHLO localhost
	// TLS true   MAIL FROM:<ada@mail.test>
	// <nil>
	// TLS true   QUIT
	// <nil>
}

// A client of PostgreSQL asks for TLS by eight bytes, and gets one for an answer. What is sent behind
// StartTLS waits until the server is known to be who was dialled.
func ExampleConn_StartTLS_client() {
	const sslRequest = "\x00\x00\x00\x08\x04\xd2\x16\x2f"
	dialer := loop.Dialer{Codec: codec.Fixed{Size: 1}}
	connect := func(l *loop.Loop, startup []byte, answer loop.Handler) {
		dialer.Dial(l, "tcp://db.example:5432", func(c *loop.Conn, err error) loop.Handler {
			if err != nil {
				return nil
			}
			_, _ = c.Write([]byte(sslRequest))
			return loop.HandlerFunc(func(c *loop.Conn, b []byte) error {
				if _, ok := c.TLS(); ok {
					return answer.OnMessage(c, b)
				}
				if b[0] != 'S' {
					return fmt.Errorf("the server speaks no TLS: %q", b)
				}
				err := c.StartTLS(&tls.Config{}, nil)
				c.SetCodec(codec.Length{Offset: 1, Size: 4, Inclusive: true})
				_, _ = c.Write(startup)
				return err
			})
		})
	}
	_ = connect
}
