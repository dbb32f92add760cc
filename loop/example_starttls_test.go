package loop_test

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
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

// An SMTP server that requires TLS before delivery. Plain-text input after STARTTLS, even if an
// attacker has injected it, is never a command.
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
	if client.Mail("ada@mail.test") != nil {
		fmt.Println("refused")
	}
	if err := client.StartTLS(&tls.Config{RootCAs: trusted, ServerName: "mail.test"}); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(client.Mail("ada@mail.test"))
	fmt.Println(client.Quit())
	// Output:
	// TLS false  EHLO localhost
	// TLS false  MAIL FROM:<ada@mail.test>
	// refused
	// TLS false  STARTTLS
	// TLS true   EHLO localhost
	// TLS true   MAIL FROM:<ada@mail.test>
	// <nil>
	// TLS true   QUIT
	// <nil>
}

// Both sides of PostgreSQL's beginning: the client asks for TLS by eight bytes, and gets one for an
// answer. Its output after StartTLS waits until the server is known to be who was dialed.
func ExampleConn_StartTLS_client() {
	const sslRequest = "\x00\x00\x00\x08\x04\xd2\x16\x2f"
	cert := looptest.Certificate("127.0.0.1")
	trusted := x509.NewCertPool()
	trusted.AddCert(cert.Leaf)
	srv := &loop.Server{Codec: codec.Fixed{Size: len(sslRequest)}, Accept: func(*loop.Conn) loop.Handler {
		return loop.HandlerFunc(func(c *loop.Conn, msg []byte) error {
			if _, ok := c.TLS(); ok {
				return c.Send([]byte("answer to " + string(msg)))
			}
			if string(msg) != sslRequest {
				return errors.New("only by TLS")
			}
			_, _ = c.Write([]byte("S"))
			err := c.StartTLS(&tls.Config{Certificates: []tls.Certificate{cert}}, nil)
			c.SetCodec(codec.Lines{})
			return err
		})
	}}
	_, stop := serve(srv)
	defer stop()

	answers := make(chan string, 2)
	dialer := loop.Dialer{Codec: codec.Fixed{Size: 1}}
	dialer.Dial(srv.Loops()[0], "tcp://"+srv.LocalAddr().String(), func(c *loop.Conn, err error) loop.Handler {
		if err != nil {
			answers <- err.Error()
			return nil
		}
		_, _ = c.Write([]byte(sslRequest))
		return loop.HandlerFunc(func(c *loop.Conn, msg []byte) error {
			if st, ok := c.TLS(); ok {
				answers <- tls.VersionName(st.Version) + ": " + string(msg)
				return nil
			}
			if string(msg) != "S" {
				return errors.New("the server speaks no TLS")
			}
			err := c.StartTLS(&tls.Config{RootCAs: trusted}, nil)
			c.SetCodec(codec.Lines{})
			_ = c.Send([]byte("select 1"))
			return err
		})
	})
	fmt.Println(<-answers)
	// Output: TLS 1.3: answer to select 1
}
