package tlsconn

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"crypto/tls"
	"encoding/binary"
	"encoding/hex"
	"io"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop/internal/testhook"
)

// A sealer makes records of TLS 1.3 that crypto/tls would not: it has the client's key from the key
// log.
type sealer struct {
	secret []byte
	aead   cipher.AEAD
	iv     []byte
	seq    uint64
}

// connectRaw connects a client whose records are then made by hand. Its cipher suite is
// TLS_AES_128_GCM_SHA256.
func connectRaw(t testing.TB, cfg *tls.Config) (*server, *tls.Conn, *sealer) {
	var log bytes.Buffer
	client := clientConfig()
	client.KeyLogWriter = &log
	client.MinVersion = tls.VersionTLS13
	s := newRig(t, nil).serve(cfg)
	c, _ := s.dial(client, 1<<20)
	if err := c.Handshake(); err != nil {
		t.Fatal(err)
	}
	<-s.opened
	if c.ConnectionState().CipherSuite != tls.TLS_AES_128_GCM_SHA256 {
		t.Skip("another cipher suite")
	}
	for line := range strings.Lines(log.String()) {
		if f := strings.Fields(line); f[0] == "CLIENT_TRAFFIC_SECRET_0" {
			secret, err := hex.DecodeString(f[2])
			if err != nil {
				t.Fatal(err)
			}
			k := &sealer{secret: secret}
			k.derive()
			return s, c, k
		}
	}
	t.Fatal("no secret")
	return nil, nil, nil
}

// expand is HKDF-Expand-Label of RFC 8446, section 7.1.
func expand(secret []byte, label string, n int) []byte {
	info := binary.BigEndian.AppendUint16(nil, uint16(n))
	info = append(info, byte(6+len(label)))
	info = append(append(info, "tls13 "+label...), 0)
	out, err := hkdf.Expand(sha256.New, secret, string(info), n)
	if err != nil {
		panic(err)
	}
	return out
}

func (k *sealer) derive() {
	block, err := aes.NewCipher(expand(k.secret, "key", 16))
	if err != nil {
		panic(err)
	}
	if k.aead, err = cipher.NewGCM(block); err != nil {
		panic(err)
	}
	k.iv, k.seq = expand(k.secret, "iv", 12), 0
}

// record seals one record.
func (k *sealer) record(typ byte, data []byte) []byte {
	inner := append(append([]byte(nil), data...), typ)
	head := []byte{typeApplication, 3, 3, 0, 0}
	binary.BigEndian.PutUint16(head[3:], uint16(len(inner)+16))
	nonce := append([]byte(nil), k.iv...)
	var seq [8]byte
	binary.BigEndian.PutUint64(seq[:], k.seq)
	for i, b := range seq {
		nonce[4+i] ^= b
	}
	k.seq++
	return k.aead.Seal(head, nonce, inner, head)
}

// keyUpdate seals a KeyUpdate that asks for another, or not.
func (k *sealer) keyUpdate(ask byte) []byte {
	b := k.record(typeHandshake, []byte{24, 0, 0, 1, ask})
	k.secret = expand(k.secret, "traffic upd", 32)
	k.derive()
	return b
}

func TestRecordsOfOneByte(t *testing.T) {
	s, _, k := connectRaw(t, serverConfig())
	want := pattern(5000)
	var stream []byte
	for _, b := range want {
		stream = append(stream, k.record(typeApplication, []byte{b})...)
	}
	s.sock.feed(stream, 1<<20)
	testkit.Eventually(t, "not all has arrived", func() bool { return len(s.plain()) == len(want) })
	if most := 1 + len(want)/share; s.plain() != string(want) || s.reads > most {
		t.Errorf("%d bytes in %d pieces, want %d in %d", len(s.got), s.reads, len(want), most)
	}
}

func TestLargestRecords(t *testing.T) {
	for _, cut := range []int{1, 4999, 16384, 16384 + 256, 1 << 20} {
		s, _, k := connectRaw(t, serverConfig())
		var stream, want []byte
		for range 3 { // padded to what RFC 8446 allows
			data := append(pattern(16384-10), bytes.Repeat([]byte{1}, 10)...)
			stream = append(stream, k.record(typeApplication, data)...)
			want = append(want, data...)
		}
		s.sock.feed(stream, cut)
		if !bytes.Equal([]byte(s.plain()), want) {
			t.Errorf("cut at %d: %d bytes, want %d", cut, len(s.got), len(want))
		}
	}
}

func TestRecordTooLong(t *testing.T) {
	s, c, _ := connectRaw(t, serverConfig())
	s.sock.feed([]byte{typeApplication, 3, 3, 0x41, 0x01, 1, 2, 3}, 1<<20) // 16384 + 257
	rest := make([]byte, 16384+257)
	s.sock.feed(rest, 1<<20)
	if err := s.end(); err == nil || !strings.Contains(err.Error(), "oversized record") {
		t.Errorf("ended with %v", err)
	}
	if _, err := c.Read(make([]byte, 1)); err == nil || !strings.Contains(err.Error(), "record overflow") {
		t.Errorf("the client got %v, want the alert", err)
	}
}

// What is longer than any record is refused when it is announced.
func TestRecordAnnouncedTooLong(t *testing.T) {
	s, c, _ := connectRaw(t, serverConfig())
	s.sock.feed([]byte{typeApplication, 3, 3, 0xff, 0xff}, 1<<20)
	if _, err := c.Read(make([]byte, 1)); err == nil || !strings.Contains(err.Error(), "record overflow") {
		t.Errorf("the client got %v, want the alert", err)
	}
	if err := s.end(); err == nil || !strings.Contains(err.Error(), "oversized record") {
		t.Errorf("ended with %v", err)
	}
}

// What is wrong gets the alert that RFC 8446 names, data behind it does not count, and the
// connection closes. Package tlsrecord has the whole list.
func TestHostileRecords(t *testing.T) {
	for _, tt := range []struct {
		name   string
		record func(k *sealer) []byte
		alert  string
	}{
		{"plaintext alert", func(*sealer) []byte { return []byte("\x15\x03\x03\x00\x02\x01\x00") }, "unexpected message"},
		{"plaintext", func(*sealer) []byte { return []byte("GET / HTTP/1.1\r\n") }, "unexpected message"},
		{"change_cipher_spec", func(*sealer) []byte { return []byte("\x14\x03\x03\x00\x01\x01") }, "unexpected message"},
		{"inner type", func(k *sealer) []byte { return k.record(24, []byte("x")) }, "unexpected message"},
		{"padding only", func(k *sealer) []byte { return k.record(0, make([]byte, 100)) }, "unexpected message"},
		{"nothing", func(*sealer) []byte { return []byte("\x17\x03\x03\x00\x00") }, "bad record MAC"},
		{"version", func(k *sealer) []byte { b := k.record(typeApplication, []byte("x")); b[1] = 9; return b }, "bad record MAC"},
		{"KeyUpdate of 2", func(k *sealer) []byte { return k.keyUpdate(2) }, "illegal parameter"},
		{"close_notify", func(k *sealer) []byte { return k.record(21, []byte{1, 0}) }, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, c, k := connectRaw(t, serverConfig())
			if s.conn.records == nil {
				t.Skip("crypto/tls has alerts of its own")
			}
			stream := append(k.record(typeApplication, []byte("before")), tt.record(k)...)
			s.sock.feed(append(stream, k.record(typeApplication, []byte("behind"))...), 1<<20)
			err := s.end()
			if (err == io.EOF) != (tt.alert == "") || s.plain() != "before" {
				t.Errorf("%q and %v, want %q and %q", s.plain(), err, "before", tt.alert)
			}
			_, read := c.Read(make([]byte, 1))
			if tt.alert == "" && read != io.EOF || tt.alert != "" && (read == nil || read.Error() != "remote error: tls: "+tt.alert) {
				t.Errorf("the client got %v, want %q", read, tt.alert)
			}
			s.sock.hangUp(io.EOF)
			if !s.sock.closed {
				t.Error("the raw socket is not closed")
			}
		})
	}
}

// A record that is announced and does not come costs what has come of it, not its size.
func TestRecordThatNeverComes(t *testing.T) {
	s, _, _ := connectRaw(t, serverConfig())
	s.sock.feed([]byte{typeApplication, 3, 3, 0x40, 0x11, 1, 2, 3}, 1)
	s.rig.do(func() {
		if got := cap(s.conn.in); got > 1024 || !s.conn.Partial() {
			t.Errorf("%d bytes for a record of which 8 have come", got)
		}
	})
}

func TestKeyUpdates(t *testing.T) {
	s, c, k := connectRaw(t, serverConfig())
	s.answer = echo
	for i := range 50 { // those that ask are answered with one
		s.sock.feed(k.keyUpdate(byte(i%2)), 1<<20)
		s.sock.feed(k.record(typeApplication, []byte("x")), 1<<20)
		got := make([]byte, 1)
		if _, err := io.ReadFull(c, got); err != nil || got[0] != 'x' {
			t.Fatalf("after %d: %q, %v", i, got, err)
		}
	}
}

// What data there is between them does not make a flood of KeyUpdates cheap.
func TestKeyUpdateFlood(t *testing.T) {
	s, c, k := connectRaw(t, serverConfig())
	var stream []byte
	for range 10_000 {
		stream = append(stream, k.keyUpdate(1)...)
		stream = append(stream, k.record(typeApplication, []byte("x"))...)
	}
	s.sock.feed(stream, 256<<10)
	if err := s.end(); err == nil || !strings.Contains(err.Error(), "too many records without data") {
		t.Errorf("ended with %v", err)
	}
	if n := len(s.plain()); n > 100 {
		t.Errorf("%d KeyUpdates were taken", n)
	}
	if _, err := c.Read(make([]byte, 1)); !testhook.CryptoTLS() && (err == nil || !strings.Contains(err.Error(), "unexpected message")) {
		t.Errorf("the client got %v, want the alert", err)
	}
}

func TestKeyUpdatesThatDataPaysFor(t *testing.T) {
	s, _, k := connectRaw(t, serverConfig())
	for range 300 {
		stream := k.keyUpdate(0)
		for range 5 {
			stream = append(stream, k.record(typeApplication, pattern(16384))...)
		}
		s.sock.feed(stream, 1<<20)
	}
	if got := s.plain(); got != strings.Repeat(string(pattern(16384)), 300*5) {
		t.Errorf("%d bytes came through, or not what was sent", len(got))
	}
}

// FuzzCuts: whatever a peer sends, and however it is cut, nothing panics; what is sealed with the
// right key comes out as it went in.
func FuzzCuts(f *testing.F) {
	f.Add(uint64(1), uint16(64), []byte{})
	f.Add(uint64(2), uint16(16384), []byte{0})
	f.Add(uint64(3), uint16(1), []byte("\x17\x03\x03\x00\x10"))
	f.Add(uint64(4), uint16(9000), []byte("\x15\x03\x03\x00\x02\x01\x00"))
	f.Fuzz(func(t *testing.T, seed uint64, size uint16, tail []byte) {
		s, _, k := connectRaw(t, serverConfig())
		s.answer = echo
		r := rand.New(rand.NewPCG(seed, 0))
		var stream, want []byte
		for range 10 {
			data := pattern(r.IntN(int(size%maxPlain) + 1))
			if r.IntN(5) == 0 {
				stream = append(stream, k.keyUpdate(byte(r.IntN(2)))...)
			}
			if len(data) > 0 {
				stream = append(stream, k.record(typeApplication, data)...)
				want = append(want, data...)
			}
		}
		stream = append(stream, tail...)
		for len(stream) > 0 {
			n := min(len(stream), 1+r.IntN(20_000))
			if r.IntN(3) == 0 {
				n = min(n, 8)
			}
			s.sock.feed(stream[:n], n)
			stream = stream[n:]
		}
		if got := s.plain(); !strings.HasPrefix(got, string(want)) || len(tail) == 0 && len(got) != len(want) {
			t.Errorf("%d bytes, want %d", len(got), len(want))
		}
		s.sock.hangUp(io.EOF)
	})
}

// FuzzHello: whatever comes first, the end of it is an error, or a handshake that waits.
func FuzzHello(f *testing.F) {
	f.Add([]byte("GET / HTTP/1.0\r\n\r\n"), uint8(3))
	f.Add(clientHello(f), uint8(1))
	f.Add(clientHello(f), uint8(200))
	f.Add([]byte("\x16\x03\x01\x00\x01\x01\x16\x03\x01\x00\x03\x00\x00\x00"), uint8(2))
	f.Fuzz(func(t *testing.T, input []byte, cut uint8) {
		s := newRig(t, nil).serve(serverConfig())
		s.sock.feed(input, int(cut)+1)
		s.sock.hangUp(io.EOF)
		if err := s.end(); err == nil || err == io.EOF {
			t.Errorf("failed with %v", err)
		}
	})
}
