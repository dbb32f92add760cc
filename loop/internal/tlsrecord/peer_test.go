package tlsrecord

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/internal/testkit"
)

// A wire is a net.Conn that reads one record at a time, and keeps what is written.
type wire struct {
	net.Conn
	rest []byte
	sent []byte
}

func (w *wire) Read(p []byte) (int, error) {
	if len(w.rest) == 0 {
		record, err := w.record()
		if err != nil {
			return 0, err
		}
		w.rest = record
	}
	n := copy(p, w.rest)
	w.rest = w.rest[n:]
	return n, nil
}

func (w *wire) Write(p []byte) (int, error) {
	w.sent = append(w.sent, p...)
	return w.Conn.Write(p)
}

func (w *wire) record() ([]byte, error) {
	header := make([]byte, headerSize)
	if _, err := io.ReadFull(w.Conn, header); err != nil {
		return nil, err
	}
	record := append(header, make([]byte, Size(header)-headerSize)...)
	_, err := io.ReadFull(w.Conn, record[headerSize:])
	return record, err
}

// connected returns both ends of a TCP connection.
func connected(t *testing.T) (a, b net.Conn) {
	accepted := make(chan net.Conn, 1)
	ln := testkit.Serve(t, func(c net.Conn) { accepted <- c; <-t.Context().Done() })
	a, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = a.Close() })
	return a, <-accepted
}

// meet has two sides of crypto/tls shake hands, and takes over one of them.
func meet(t *testing.T, client bool, serverConfig, clientConfig *tls.Config) (ours *Conn, w *wire, theirs *tls.Conn) {
	t.Helper()
	a, b := connected(t)
	w = &wire{Conn: a}
	var log bytes.Buffer
	var mine *tls.Conn
	if client {
		clientConfig = clientConfig.Clone()
		clientConfig.KeyLogWriter = &log
		mine, theirs = tls.Client(w, clientConfig), tls.Server(b, serverConfig)
	} else {
		serverConfig.KeyLogWriter = &log
		mine, theirs = tls.Server(w, serverConfig), tls.Client(b, clientConfig)
	}
	done := make(chan error, 1)
	go func() { done <- theirs.Handshake() }()
	if err := errors.Join(mine.Handshake(), <-done); err != nil {
		t.Fatal(err)
	}
	ours = takeOver(t, client, mine, log.String())
	if !client {
		ours.Sent(w.sent)
	}
	return ours, w, theirs
}

// takeOver returns a Conn with the secrets that a side of crypto/tls has logged.
func takeOver(t *testing.T, client bool, mine *tls.Conn, log string) *Conn {
	t.Helper()
	secrets := map[string][]byte{}
	for line := range strings.Lines(log) {
		f := strings.Fields(line)
		secrets[f[0]] = unhex(t, f[2])
	}
	suite := mine.ConnectionState().CipherSuite
	read, write := secrets["CLIENT_TRAFFIC_SECRET_0"], secrets["SERVER_TRAFFIC_SECRET_0"]
	if client {
		read, write = write, read
	}
	ours, err := New(client, suite, read, write)
	if err != nil {
		t.Fatal(err)
	}
	t.Log(tls.CipherSuiteName(suite))
	return ours
}

func configs(t *testing.T) (server, client *tls.Config) {
	certs := []tls.Certificate{testkit.Certificate("test")}
	return &tls.Config{Certificates: certs}, &tls.Config{InsecureSkipVerify: true, ClientSessionCache: tls.NewLRUClientSessionCache(1)}
}

// exchange makes both sides send each other messages of all sizes, with updates of our key in
// between.
func exchange(t *testing.T, ours *Conn, w *wire, theirs *tls.Conn) {
	t.Helper()
	rng := rand.New(rand.NewPCG(testkit.Seed(t, 1), 0))
	failed := make(chan error, 1)
	go func() { // it echoes
		buf := make([]byte, 100<<10)
		for {
			n, err := theirs.Read(buf)
			if err == nil {
				_, err = theirs.Write(buf[:n])
			}
			if err != nil {
				failed <- err
				return
			}
		}
	}()
	for i := range 100 {
		want := pattern(1 + rng.IntN(1<<(1+rng.IntN(17))))
		var out []byte
		switch rng.IntN(4) {
		case 0:
			out = ours.update(nil)
		case 1: // and theirs
			out = ours.out.seal(ours.suite, nil, typeHandshake, []byte{keyUpdate, 0, 0, 1, updateRequested})
			ours.out.update(ours.suite)
		}
		out, err := ours.Seal(out, want)
		if err != nil {
			t.Fatal(err)
		}
		go func() { _, _ = w.Conn.Write(out) }()
		var got []byte
		for len(got) < len(want) {
			record, err := w.record()
			if err != nil {
				t.Fatalf("message %d: %v, the peer: %v", i, err, <-failed)
			}
			if got, err = ours.Open(got, record); err != nil {
				t.Fatalf("message %d: %v", i, err)
			}
		}
		if !bytes.Equal(got, want) {
			t.Fatalf("message %d: the echo of %d bytes is not what was sent", i, len(want))
		}
	}
	go func() { _, _ = w.Conn.Write(ours.CloseNotify(nil)) }()
	if err := <-failed; err != io.EOF {
		t.Errorf("the peer reads %v at the end, want %v", err, io.EOF)
	}
}

// After a handshake of crypto/tls, with and without a session ticket, of one record or several,
// ours goes on, on either side.
func TestAgainstCryptoTLS(t *testing.T) {
	for _, tt := range []struct {
		name   string
		client bool
		change func(server, client *tls.Config)
		seq    uint64 // records sent before
	}{
		{"client", true, func(server, client *tls.Config) {}, 0},
		{"server", false, func(server, client *tls.Config) {}, 1},
		{"server without tickets", false, func(server, client *tls.Config) { server.SessionTicketsDisabled = true }, 0},
		{"server with client certificates", false, func(server, client *tls.Config) {
			server.ClientAuth, client.Certificates = tls.RequireAnyClientCert, server.Certificates
		}, 1},
		{"server with a large ticket", false, func(server, client *tls.Config) {
			server.WrapSession = func(tls.ConnectionState, *tls.SessionState) ([]byte, error) { return pattern(40000), nil }
		}, 3},
	} {
		t.Run(tt.name, func(t *testing.T) {
			server, client := configs(t)
			tt.change(server, client)
			ours, w, theirs := meet(t, tt.client, server, client)
			if ours.out.seq != tt.seq {
				t.Errorf("%d records were sent under the key, want %d", ours.out.seq, tt.seq)
			}
			if os.Getenv(withoutAES) != "" && ours.suite != suites[tls.TLS_CHACHA20_POLY1305_SHA256] {
				t.Skip("without AES it is another cipher suite here")
			}
			exchange(t, ours, w, theirs)
		})
	}
}

const withoutAES = "TLSRECORD_WITHOUT_AES"

// The servers of OpenSSL and GnuTLS go along with the updates that our side begins.
func TestUpdatesAgainstStrangers(t *testing.T) {
	cert, key := testkit.CertificateFiles(t, testkit.Certificate("test"))
	port := strconv.Itoa(testkit.FreePort(t))
	for name, args := range map[string][]string{
		"openssl":     {"s_server", "-rev", "-quiet", "-accept", "127.0.0.1:" + port, "-cert", cert, "-key", key, "-tls1_3"},
		"gnutls-serv": {"--echo", "-p", port, "--x509certfile=" + cert, "--x509keyfile=" + key},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := exec.LookPath(name); err != nil {
				t.Skip("it is not installed; CI has it")
			}
			cmd := exec.CommandContext(t.Context(), name, args...)
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = cmd.Wait() })
			w := new(wire)
			testkit.Eventually(t, "the server listens", func() (ok bool) {
				nc, err := net.Dial("tcp", "127.0.0.1:"+port)
				w.Conn = nc
				return err == nil
			})
			defer w.Conn.Close()
			var log bytes.Buffer
			mine := tls.Client(w, &tls.Config{InsecureSkipVerify: true, KeyLogWriter: &log})
			if err := mine.Handshake(); err != nil {
				t.Fatal(err)
			}
			ours := takeOver(t, true, mine, log.String())
			own := *ours.suite
			own.limit = 10 // GnuTLS takes 8 updates a second
			ours.suite = &own
			first := ours.out.secret
			for i := range 30 {
				want := strings.Repeat("a", i+1) + "\n" // OpenSSL reverses lines
				out, err := ours.Seal(nil, []byte(want))
				if err == nil {
					_, err = w.Conn.Write(out)
				}
				var got []byte
				for err == nil && !bytes.HasSuffix(got, []byte("\n")) {
					var record []byte
					if record, err = w.record(); err == nil {
						got, err = ours.Open(got, record)
					}
				}
				if string(got) != want || err != nil {
					t.Fatalf("line %d comes back as %q, %v", i, got, err)
				}
			}
			if ours.out.secret == first {
				t.Error("our key was not updated")
			}
		})
	}
}

// A processor without AES instructions prefers ChaCha20-Poly1305.
func TestAgainstCryptoTLSWithoutAES(t *testing.T) {
	if os.Getenv(withoutAES) != "" {
		t.Skip("it is the process without AES")
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestAgainstCryptoTLS$", "-test.v")
	cmd.Env = append(os.Environ(), withoutAES+"=1", "GODEBUG=cpu.aes=off")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	if !strings.Contains(string(out), "TLS_CHACHA20_POLY1305_SHA256") {
		t.Skip("another cipher suite")
	}
}

// Records have the sizes of those of crypto/tls: small ones first, unless the tls.Config forbids
// it.
func TestRecordSizes(t *testing.T) {
	for _, full := range []bool{false, true} {
		server, client := configs(t)
		client.DynamicRecordSizingDisabled = full
		ours, w, theirs := meet(t, false, server, client)
		if full {
			ours.FullRecords()
		}
		ours.grown = min(ours.grown, growing)
		for _, size := range []int{1, 1186, 3000, 100000, 100000} {
			data := pattern(size)
			go func() { _, _ = theirs.Write(data) }()
			mine, err := ours.Seal(nil, data)
			if err != nil {
				t.Fatal(err)
			}
			for len(mine) > 0 {
				record, err := w.record()
				if err == nil {
					_, err = ours.Open(nil, record)
				}
				if err != nil {
					t.Fatal(err)
				}
				if got, want := Size(mine), len(record); got != want {
					t.Fatalf("full %v: a record of %d bytes, crypto/tls' has %d", full, got, want)
				}
				mine = mine[Size(mine):]
			}
		}
	}
}

// Alerts of either side have the texts that those of crypto/tls have.
func TestAlertsToAndFromCryptoTLS(t *testing.T) {
	for _, record := range [][]byte{inner(typeApplication, maxPlain, 'a'), inner(typeHandshake, 0, keyUpdate, 0, 0, 1, 7)} {
		server, client := configs(t)
		ours, w, theirs := meet(t, false, server, client)
		go func() { _, _ = w.Conn.Write(forge(ours, record...)) }()
		answered := make(chan []byte)
		go func() {
			record, _ := w.record()
			answered <- record
		}()
		_, err := theirs.Read(make([]byte, 1))
		record := <-answered
		_, got := open(ours, record)
		if local, ok := errors.AsType[*net.OpError](err); !ok || local.Op != "local error" ||
			got == nil || got.Error() != "remote error: "+local.Err.Error() {
			t.Errorf("error %v, want that of the peer's %v", got, err)
		}
	}
}

// detached has crypto/tls' client on the other side of a NetConn.
func detached(t *testing.T) (ours *NetConn, theirs *tls.Conn) {
	server, client := configs(t)
	records, w, theirs := meet(t, false, server, client)
	ours = NewNetConn(w.Conn, records, tls.ConnectionState{Version: tls.VersionTLS13}, nil)
	t.Cleanup(func() { _ = ours.Close() })
	return ours, theirs
}

// A NetConn echoes what crypto/tls sends, in pieces of any size, reading and writing at the same
// time, until both have said their ends.
func TestNetConn(t *testing.T) {
	ours, theirs := detached(t)
	echoed := make(chan error, 1)
	go func() {
		_, err := io.Copy(struct{ io.Writer }{ours}, struct{ io.Reader }{ours})
		echoed <- errors.Join(err, ours.CloseWrite())
	}()
	rng := rand.New(rand.NewPCG(testkit.Seed(t, 1), 0))
	want := pattern(3 << 20)
	go func() {
		for rest := want; len(rest) > 0; {
			n := min(len(rest), 1+rng.IntN(1<<rng.IntN(18)))
			_, _ = theirs.Write(rest[:n])
			rest = rest[n:]
		}
		_ = theirs.CloseWrite()
	}()
	got, err := io.ReadAll(theirs)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%d bytes come back, error %v, want %d", len(got), err, len(want))
	}
	if err := <-echoed; err != nil {
		t.Error(err)
	}
	if _, err := ours.Write([]byte("x")); err != ErrShutdown {
		t.Errorf("Write after CloseWrite: %v, want %v", err, ErrShutdown)
	}
}

func TestNetConnEnds(t *testing.T) {
	t.Run("Close", func(t *testing.T) {
		ours, theirs := detached(t)
		done := make(chan error, 1)
		go func() {
			_, err := ours.Read(make([]byte, 1))
			done <- err
		}()
		if err := ours.Close(); err != nil {
			t.Error(err)
		}
		if err := <-done; !errors.Is(err, net.ErrClosed) {
			t.Errorf("Read: %v, want %v", err, net.ErrClosed)
		}
		if _, err := theirs.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("the peer reads %v, want %v", err, io.EOF)
		}
		if _, err := ours.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
			t.Errorf("Write: %v, want %v", err, net.ErrClosed)
		}
		if _, err := ours.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
			t.Errorf("Read again: %v, want %v", err, net.ErrClosed)
		}
	})
	t.Run("peer's end was read before", func(t *testing.T) {
		server, client := pair(t, tls.TLS_AES_128_GCM_SHA256)
		if _, err := open(server, client.CloseNotify(nil)); err != io.EOF {
			t.Fatalf("error %v, want %v", err, io.EOF)
		}
		a, _ := connected(t)
		if _, err := NewNetConn(a, server, tls.ConnectionState{}, nil).Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("Read: %v, want %v", err, io.EOF)
		}
	})
	t.Run("no close_notify", func(t *testing.T) {
		ours, theirs := detached(t)
		_ = theirs.NetConn().Close()
		if _, err := ours.Read(make([]byte, 1)); err != io.ErrUnexpectedEOF {
			t.Errorf("Read: %v, want %v", err, io.ErrUnexpectedEOF)
		}
	})
	t.Run("alert", func(t *testing.T) {
		ours, theirs := detached(t)
		_, _ = theirs.NetConn().Write([]byte{typeApplication, 3, 3, 0, 17, 16: 0, 21: 0})
		if _, err := ours.Read(make([]byte, 1)); !errors.Is(err, badRecordMAC) {
			t.Errorf("Read: %v, want %v", err, badRecordMAC)
		}
		if _, err := theirs.Read(make([]byte, 1)); err == nil || err.Error() != "remote error: "+badRecordMAC.Error() {
			t.Errorf("the peer reads %v, want %v", err, badRecordMAC)
		}
	})
	t.Run("deadlines", func(t *testing.T) {
		ours, theirs := detached(t)
		_ = ours.SetReadDeadline(time.Now().Add(-time.Second))
		if _, err := ours.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("Read: %v, want %v", err, os.ErrDeadlineExceeded)
		}
		_ = ours.SetReadDeadline(time.Time{})
		_, _ = theirs.Write([]byte("x"))
		if n, err := ours.Read(make([]byte, 1)); n != 1 || err != nil {
			t.Errorf("Read with time: %d bytes, %v, want 1", n, err)
		}
		_ = ours.SetWriteDeadline(time.Now().Add(-time.Second))
		for range 2 { // it does not recover
			if _, err := ours.Write([]byte("x")); !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("Write: %v, want %v", err, os.ErrDeadlineExceeded)
			}
			_ = ours.SetWriteDeadline(time.Time{})
		}
	})
}
