package tlsrecord

import (
	"bytes"
	"crypto/hkdf"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/tls"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"net"
	"slices"
	"testing"
)

// pair returns a server and its client. The secrets are what they happen to be.
func pair(tb testing.TB, cipherSuite uint16) (server, client *Conn) {
	tb.Helper()
	a, b := make([]byte, suites[cipherSuite].hashSize), make([]byte, suites[cipherSuite].hashSize)
	for i := range a {
		a[i], b[i] = byte(i), byte(100+i)
	}
	server, err := New(false, cipherSuite, a, b)
	if err == nil {
		client, err = New(true, cipherSuite, b, a)
	}
	if err != nil {
		tb.Fatal(err)
	}
	return server, client
}

// perSuite runs a test for each cipher suite.
func perSuite(t *testing.T, test func(t *testing.T, server, client *Conn)) {
	for id := range suites {
		t.Run(tls.CipherSuiteName(id), func(t *testing.T) {
			server, client := pair(t, id)
			test(t, server, client)
		})
	}
}

// forge returns a record of c's that Seal would not make: inner is its TLSInnerPlaintext.
func forge(c *Conn, inner ...byte) []byte {
	size := len(inner) + tagSize
	header := []byte{typeApplication, 3, 3, byte(size >> 8), byte(size)}
	c.out.mask()
	record := c.out.aead.Seal(header, c.out.iv[:], inner, header)
	c.out.mask()
	c.out.seq++
	return record
}

// inner returns a TLSInnerPlaintext.
func inner(typ byte, padding int, content ...byte) []byte {
	return append(append(content, typ), make([]byte, padding)...)
}

// open gives c records, and returns the data in them.
func open(c *Conn, records []byte) (data []byte, err error) {
	for len(records) > 0 && err == nil {
		n := min(Size(records), len(records))
		data, err = c.Open(data, records[:n])
		records = records[n:]
	}
	return data, err
}

func pattern(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i * 7)
	}
	return b
}

func unhex(t *testing.T, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// The records behind the handshakes of RFC 8448, sections 3 and 4: they open, and ours are the
// same.
func TestRFC8448(t *testing.T) {
	for _, tt := range []struct {
		name, clientSecret, serverSecret string
		ticket, ticketRecord             string
		client, server                   string // records of the bytes 0 to 49
		clientEnd, serverEnd             string
	}{
		{
			name:         "section 3",
			clientSecret: "9e40646ce79a7f9dc05af8889bce6552875afa0b06df0087f792ebb7c17504a5",
			serverSecret: "a11af9f05531f856ad47116b45a950328204b4f44bfb6b3a4b4f1f3fcb631643",
			ticket: "040000c90000001efad6aac502000000b22c035d829359ee5ff7af4ec900000000262a6494dc486d2c8a34cb33fa90bf1b0070ad" +
				"3c498883c9367c09a2be785abc55cd226097a3a982117283f82a03a143efd3ff5dd36d64e861be7fd61d2827db279cce145077d4" +
				"54a3664d4e6da4d29ee03725a6a4dafcd0fc67d2aea70529513e3da2677fa5906c5b3f7d8f92f228bda40dda721470f9fbf297b5" +
				"aea617646fac5c03272e970727c621a79141ef5f7de6505e5bfbc388e93343694093934ae4d3570008002a000400000400",
			ticketRecord: "17030300de3a6b8f90414a97d6959c3487680de5134a2b240e6cffac116e95d41d6af8f6b580dcf3d11d63c758db289a01594025" +
				"2f55713e061dc13e078891a38efbcf5753ad8ef170ad3c7353d16d9da773b9ca7f2b9fa1b6c0d4a3d03f75e09c30ba1e62972ac4" +
				"6f75f7b981be63439b2999ce13064615139891d5e4c5b406f16e3fc181a77ca475840025db2f0a77f81b5ab05b94c01346755f69" +
				"232c86519d86cbeeac87aac347d143f9605d64f650db4d023e70e952ca49fe5137121c74bc2697687e248746d6df353005f3bce1" +
				"8696129c8153556b3b6c6779b37bf15985684f",
			client:    "1703030043a23f7054b62c94d0affafe8228ba55cbefacea42f914aa66bcab3f2b9819a8a5b46b395bd54a9a20441e2b62974e1f5a6292a2977014bd1e3deae63aeebb21694915e4",
			server:    "17030300432e937e11ef4ac740e538ad36005fc4a46932fc3225d05f82aa1b36e30efaf97d90e6dffc602dcb501a59a8fcc49c4bf2e5f0a21c0047c2abf332540dd032e167c2955d",
			clientEnd: "1703030013c9872760655666b74d7ff1153efd6db6d0b0e3",
			serverEnd: "1703030013b58fd67166ebf599d24720cfbe7efa7a8864a9",
		},
		{
			name:         "section 4",
			clientSecret: "2abbf2b8e381d23dbebe1dd2a7d16a8bf484cb4950d23fb7fb7fa8547062d9a1",
			serverSecret: "cc21f1bf8feb7dd5fa505bd9c4b468a9984d554a993dc49e6d285598fb672691",
			client:       "1703030043b1cebce242aa201be9ae5e1cb2a9aa4b33d4e866af1edb068919237741aa031d7a74d491c99b9d4e232b74206bc6fbaa04fe78be44a9b4f54320a17eb76992afac3103",
			server:       "1703030043275e9f20acff57bc000657d3867df039cccf79047884cf75771746f740b5a83f462a0954c3581393a203a25a7dd14141ef1a37900cdb62ff62dee1ba39ab2590cbf194",
			clientEnd:    "17030300130facce3246bdfc6369838d6a82ae6de5d422dc",
			serverEnd:    "17030300135b18af444e8e1eec7158fb62d8f2577d37ba5d",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cs, ss := unhex(t, tt.clientSecret), unhex(t, tt.serverSecret)
			server, err1 := New(false, tls.TLS_AES_128_GCM_SHA256, cs, ss)
			client, err2 := New(true, tls.TLS_AES_128_GCM_SHA256, ss, cs)
			if err := errors.Join(err1, err2); err != nil {
				t.Fatal(err)
			}
			data := make([]byte, 50)
			for i := range data {
				data[i] = byte(i)
			}
			check := func(what string, from, to *Conn, record []byte, wantRecord string, wantData []byte, wantErr error) {
				t.Helper()
				if got := hex.EncodeToString(record); got != wantRecord {
					t.Errorf("%s: the record is %s, want %s", what, got, wantRecord)
				}
				got, err := open(to, unhex(t, wantRecord))
				if err != wantErr {
					t.Errorf("%s: error %v, want %v", what, err, wantErr)
				}
				if !bytes.Equal(got, wantData) {
					t.Errorf("%s: data %x, want %x", what, got, wantData)
				}
			}
			if tt.ticket != "" {
				ticket := server.out.seal(server.suite, nil, typeHandshake, unhex(t, tt.ticket))
				check("ticket", server, client, ticket, tt.ticketRecord, nil, nil)
			}
			record, _ := client.Seal(nil, data)
			check("client's data", client, server, record, tt.client, data, nil)
			record, _ = server.Seal(nil, data)
			check("server's data", server, client, record, tt.server, data, nil)
			check("client's end", client, server, client.CloseNotify(nil), tt.clientEnd, nil, io.EOF)
			check("server's end", server, client, server.CloseNotify(nil), tt.serverEnd, nil, io.EOF)
		})
	}
}

// hostile are records of a client, or of a server if toClient, and what comes of them: all inner
// plaintexts are under the right key.
var hostile = []struct {
	name     string
	toClient bool
	inners   [][]byte
	alert    tls.AlertError // that goes back; 0: none
	err      error          // if there is no alert
	data     string
}{
	{name: "data", inners: [][]byte{inner(typeApplication, 0, 'a'), inner(typeApplication, 0, 'b')}, data: "ab"},
	{name: "padding", inners: [][]byte{inner(typeApplication, 1, 'a'), inner(typeApplication, maxPlain-1, 'b')}, data: "ab"},
	{name: "data that ends with zeros", inners: [][]byte{inner(typeApplication, 9, 'a', 0, 0)}, data: "a\x00\x00"},
	{name: "empty", inners: [][]byte{{}}, alert: unexpectedMessage},
	{name: "padding only", inners: [][]byte{make([]byte, 100)}, alert: unexpectedMessage},
	{name: "largest padding only", inners: [][]byte{make([]byte, maxPlain+1)}, alert: unexpectedMessage},
	{name: "too much padding", inners: [][]byte{inner(typeApplication, maxPlain, 'a')}, alert: recordOverflow},
	{name: "too much data", inners: [][]byte{inner(typeApplication, 0, make([]byte, maxPlain+1)...)}, alert: recordOverflow},
	{name: "largest ciphertext", inners: [][]byte{inner(typeApplication, 0, make([]byte, maxCipher-tagSize-1)...)}, alert: recordOverflow},
	{name: "larger ciphertext", inners: [][]byte{inner(typeApplication, 0, make([]byte, maxCipher-tagSize)...)}, alert: recordOverflow},
	{name: "16 records without data", inners: slices.Repeat([][]byte{inner(typeApplication, 5)}, maxUseless)},
	{name: "32 records without data", inners: slices.Repeat([][]byte{inner(typeApplication, 5)}, 32), alert: unexpectedMessage, err: errUseless},
	{name: "32 between data", inners: slices.Repeat([][]byte{inner(typeApplication, 5), inner(typeApplication, 0, 'a')}, 4), data: "aaaa"},
	{name: "inner type 0x18", inners: [][]byte{inner(24, 0, 'a')}, alert: unexpectedMessage},
	{name: "change_cipher_spec", inners: [][]byte{inner(20, 0, 1)}, alert: unexpectedMessage},

	{name: "close_notify", inners: [][]byte{inner(typeAlert, 0, 1, 0)}, err: io.EOF},
	{name: "data after close_notify", inners: [][]byte{inner(typeApplication, 0, 'a'), inner(typeAlert, 0, 1, 0), inner(typeApplication, 0, 'b')}, err: io.EOF, data: "a"},
	{name: "fatal close_notify", inners: [][]byte{inner(typeAlert, 0, 2, 0)}, err: io.EOF},
	{name: "user_canceled", inners: [][]byte{inner(typeAlert, 0, 1, 90), inner(typeApplication, 0, 'a')}, data: "a"},
	{name: "fatal alert", inners: [][]byte{inner(typeAlert, 0, 2, 40)}, err: tls.AlertError(40)},
	{name: "warning that is none", inners: [][]byte{inner(typeAlert, 0, 1, 100)}, err: tls.AlertError(100)},
	{name: "unknown alert", inners: [][]byte{inner(typeAlert, 0, 7, 200)}, err: tls.AlertError(200)},
	{name: "empty alert", inners: [][]byte{inner(typeAlert, 3)}, alert: unexpectedMessage},
	{name: "half an alert", inners: [][]byte{inner(typeAlert, 0, 1)}, alert: decodeError},
	{name: "two alerts", inners: [][]byte{inner(typeAlert, 0, 1, 0, 1, 0)}, alert: decodeError},
	{name: "32 user_canceled", inners: slices.Repeat([][]byte{inner(typeAlert, 0, 1, 90)}, 32), alert: unexpectedMessage, err: errUseless},

	{name: "KeyUpdate in parts", inners: [][]byte{inner(typeHandshake, 0, keyUpdate, 0), inner(typeHandshake, 2, 0, 1), inner(typeHandshake, 0, 0)}},
	{name: "data within KeyUpdate", inners: [][]byte{inner(typeHandshake, 0, keyUpdate, 0), inner(typeApplication, 0, 'a')}, alert: unexpectedMessage},
	{name: "close_notify within KeyUpdate", inners: [][]byte{inner(typeHandshake, 0, keyUpdate), inner(typeAlert, 0, 1, 0)}, alert: unexpectedMessage},
	{name: "two KeyUpdates in a record", inners: [][]byte{inner(typeHandshake, 0, keyUpdate, 0, 0, 1, 0, keyUpdate, 0, 0, 1, 0)}, alert: unexpectedMessage},
	{name: "KeyUpdate of nothing", inners: [][]byte{inner(typeHandshake, 0, keyUpdate, 0, 0, 0)}, alert: decodeError},
	{name: "long KeyUpdate", inners: [][]byte{inner(typeHandshake, 0, keyUpdate, 0, 0, 2, 0, 0)}, alert: decodeError},
	{name: "huge KeyUpdate", inners: [][]byte{inner(typeHandshake, 0, keyUpdate, 255, 255, 255)}, alert: decodeError},
	{name: "KeyUpdate of 2", inners: [][]byte{inner(typeHandshake, 0, keyUpdate, 0, 0, 1, 2)}, alert: illegalParameter},
	{name: "empty handshake record", inners: [][]byte{inner(typeHandshake, 1)}, alert: unexpectedMessage},
	{name: "ClientHello", inners: [][]byte{inner(typeHandshake, 0, 1)}, alert: unexpectedMessage},
	{name: "Finished", inners: [][]byte{inner(typeHandshake, 0, 20, 0, 0, 32)}, alert: unexpectedMessage},
	{name: "CertificateRequest", toClient: true, inners: [][]byte{inner(typeHandshake, 0, 13, 0, 0, 3, 0, 0, 0)}, alert: unexpectedMessage},
	{name: "ticket from a client", inners: [][]byte{inner(typeHandshake, 0, ticket(1)...)}, alert: unexpectedMessage},

	{name: "tickets", toClient: true, inners: [][]byte{inner(typeHandshake, 0, append(ticket(1), ticket(300)...)...), inner(typeApplication, 0, 'a')}, data: "a"},
	{name: "ticket and KeyUpdate", toClient: true, inners: [][]byte{inner(typeHandshake, 0, append(ticket(9), keyUpdate, 0, 0, 1, 0)...)}},
	{name: "ticket in parts", toClient: true, inners: [][]byte{
		inner(typeHandshake, 0, ticket(40000)[:15000]...), inner(typeHandshake, 0, ticket(40000)[15000:30000]...), inner(typeHandshake, 0, ticket(40000)[30000:]...),
	}},
	{name: "empty ticket", toClient: true, inners: [][]byte{inner(typeHandshake, 0, ticket(0)...)}, alert: decodeError},
	{name: "ticket that is cut", toClient: true, inners: [][]byte{inner(typeHandshake, 0, append([]byte{newSessionTicket, 0, 0, 20}, ticket(100)[4:24]...)...)}, alert: decodeError},
	{name: "ticket of 16 MB", toClient: true, inners: [][]byte{inner(typeHandshake, 0, newSessionTicket, 255, 255, 255)}, alert: decodeError},
	{name: "32 tickets", toClient: true, inners: slices.Repeat([][]byte{inner(typeHandshake, 0, ticket(1)...)}, 32), alert: unexpectedMessage, err: errUseless},
}

// ticket returns a NewSessionTicket with a ticket of n bytes.
func ticket(n int) []byte {
	size := 8 + 1 + 2 + n + 2
	b := append([]byte{newSessionTicket, byte(size >> 16), byte(size >> 8), byte(size)}, make([]byte, 8+1)...)
	b = append(b, byte(n>>8), byte(n))
	return append(append(b, make([]byte, n)...), 0, 0)
}

func TestHostile(t *testing.T) {
	for _, tt := range hostile {
		t.Run(tt.name, func(t *testing.T) {
			perSuite(t, func(t *testing.T, server, client *Conn) {
				from, to := client, server
				if tt.toClient {
					from, to = server, client
				}
				var data []byte
				var err error
				for _, in := range tt.inners {
					var p []byte
					p, err = open(to, forge(from, in...))
					data = append(data, p...)
				}
				if string(data) != tt.data {
					t.Errorf("data %q, want %q", data, tt.data)
				}
				want := tt.err
				if want == nil && tt.alert != 0 {
					want = tt.alert
				}
				if tt.alert == recordOverflow && errors.As(err, new(tls.RecordHeaderError)) {
					want = err // as crypto/tls says it
				}
				if !errors.Is(err, want) {
					t.Errorf("error %v, want %v", err, want)
				}
				checkEnd(t, from, to, tt.alert, err)
			})
		})
	}
}

// checkEnd checks what to says to from at the end: a fatal alert and nothing behind it, or nothing.
func checkEnd(t *testing.T, from, to *Conn, alert tls.AlertError, err error) {
	t.Helper()
	answer := to.Alert(nil)
	if alert == 0 {
		if len(answer) > 0 {
			t.Errorf("an answer of %d bytes, want none", len(answer))
		}
		return
	}
	_, got := open(from, answer)
	if op, ok := errors.AsType[*net.OpError](got); !ok || op.Op != "remote error" || op.Err != alert {
		t.Errorf("the peer reads %v, want the alert %v", got, alert)
	}
	if _, again := open(to, forge(from, inner(typeApplication, 0, 'x')...)); again != err {
		t.Errorf("then %v, want %v", again, err)
	}
	more, serr := to.Seal(to.Alert(to.CloseNotify(nil)), []byte("x"))
	if len(more) > 0 || serr != ErrShutdown {
		t.Errorf("after its alert it sends %d bytes, error %v, want none and %v", len(more), serr, ErrShutdown)
	}
}

// expectAlert checks that a record is refused with an alert.
func expectAlert(t *testing.T, from, to *Conn, record []byte, want tls.AlertError) {
	t.Helper()
	data, err := open(to, record)
	if len(data) > 0 || err == nil || err == io.EOF {
		t.Errorf("data %q, error %v, want none and an alert", data, err)
	}
	checkEnd(t, from, to, want, err)
}

// A record that was changed does not open, whichever bit it is. What is no record of application
// data any more is refused for that, and what has become too long is for that.
func TestFlippedBits(t *testing.T) {
	for i := range 8 * (headerSize + 9 + 1 + tagSize) {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			perSuite(t, func(t *testing.T, server, client *Conn) {
				record, _ := client.Seal(nil, []byte("plaintext"))
				record[i/8] ^= 1 << (i % 8)
				want := badRecordMAC
				switch {
				case i < 8:
					want = unexpectedMessage
				case Size(record)-headerSize > maxCipher:
					want = recordOverflow
				}
				expectAlert(t, client, server, record, want)
			})
		})
	}
}

func TestWrongRecords(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(first, second []byte) []byte // the next record of the client's
		alert  tls.AlertError
	}{
		{"reordered", func(_, second []byte) []byte { return second }, badRecordMAC},
		{"truncated", func(first, _ []byte) []byte {
			first[4]--
			return first[:len(first)-1]
		}, badRecordMAC},
		{"no room for a tag", func([]byte, []byte) []byte { return []byte{typeApplication, 3, 3, 0, 3, 1, 2, 3} }, badRecordMAC},
		{"nothing", func([]byte, []byte) []byte { return []byte{typeApplication, 3, 3, 0, 0} }, badRecordMAC},
		{"random bytes, as many as may be", func([]byte, []byte) []byte {
			return append([]byte{typeApplication, 3, 3, maxCipher >> 8, maxCipher & 255}, pattern(maxCipher)...)
		}, badRecordMAC},
		{"one byte more", func([]byte, []byte) []byte {
			return append([]byte{typeApplication, 3, 3, maxCipher >> 8, maxCipher&255 + 1}, pattern(maxCipher+1)...)
		}, recordOverflow},
		{"too long, and not all of it", func([]byte, []byte) []byte { return []byte{typeApplication, 3, 3, 255, 255} }, recordOverflow},
		{"plaintext alert", func([]byte, []byte) []byte { return []byte{typeAlert, 3, 3, 0, 2, 1, 0} }, unexpectedMessage},
		{"plaintext handshake", func([]byte, []byte) []byte {
			return []byte{typeHandshake, 3, 3, 0, 5, keyUpdate, 0, 0, 1, 0}
		}, unexpectedMessage},
		{"change_cipher_spec", func([]byte, []byte) []byte { return []byte{20, 3, 3, 0, 1, 1} }, unexpectedMessage},
		{"HTTP", func([]byte, []byte) []byte { return []byte("GET / HTTP/1.1\r\n\r\n") }, unexpectedMessage},
	} {
		t.Run(tt.name, func(t *testing.T) {
			perSuite(t, func(t *testing.T, server, client *Conn) {
				first, _ := client.Seal(nil, []byte("first"))
				second, _ := client.Seal(nil, []byte("second"))
				expectAlert(t, client, server, tt.change(first, second), tt.alert)
			})
		})
	}
}

// A record that comes twice is refused the second time.
func TestReplay(t *testing.T) {
	perSuite(t, func(t *testing.T, server, client *Conn) {
		record, _ := client.Seal(nil, []byte("once"))
		if data, err := open(server, bytes.Clone(record)); string(data) != "once" || err != nil {
			t.Errorf("data %q, error %v, want %q and none", data, err, "once")
		}
		expectAlert(t, client, server, record, badRecordMAC)
	})
}

// Data in place, behind other data, and apart is the same. Of the buffer behind dst nothing is
// promised, but what is before it stays.
func TestOpenWhere(t *testing.T) {
	perSuite(t, func(t *testing.T, server, client *Conn) {
		for _, size := range []int{1, 100, maxPlain} {
			want := pattern(size)
			client.FullRecords()
			record, _ := client.Seal(nil, want)
			got, err := server.Open(record[headerSize:headerSize], record)
			if err != nil || !bytes.Equal(got, want) {
				t.Errorf("in place, %d bytes: %d bytes, error %v", size, len(got), err)
			}
			record, _ = client.Seal(nil, want)
			dst := append(make([]byte, 0, 2*maxPlain), "before"...)
			got, err = server.Open(dst, record)
			if err != nil || !bytes.Equal(got, append([]byte("before"), want...)) {
				t.Errorf("behind other data, %d bytes: %d bytes, error %v", size, len(got), err)
			}
		}
	})
}

// A peer that asks for an update of the key gets one, right before the next data and not earlier.
// One that asks often gets one for all of that.
func TestKeyUpdates(t *testing.T) {
	perSuite(t, func(t *testing.T, server, client *Conn) {
		ask := []byte{keyUpdate, 0, 0, 1, updateRequested}
		for round := range 40 {
			for range round % 4 {
				record := client.out.seal(client.suite, nil, typeHandshake, ask)
				client.out.update(client.suite)
				if data, err := open(server, record); len(data) > 0 || err != nil {
					t.Fatalf("round %d: data %q, error %v", round, data, err)
				}
				if answer := server.Alert(nil); len(answer) > 0 {
					t.Fatalf("round %d: an answer of %d bytes, want none before there is data", round, len(answer))
				}
			}
			before := client.in.secret
			answer := server.out.seq
			records, err := server.Seal(nil, []byte("data"))
			if round%4 == 0 && server.out.seq != answer+1 || round%4 > 0 && server.out.seq != 1 {
				t.Fatalf("round %d: %d records under the key, %d before", round, server.out.seq, answer)
			}
			data, err2 := open(client, records)
			if string(data) != "data" || err != nil || err2 != nil {
				t.Fatalf("round %d: data %q, errors %v and %v", round, data, err, err2)
			}
			if updated := client.in.secret != before; updated != (round%4 > 0) {
				t.Fatalf("round %d: the key was updated: %v", round, updated)
			}
			record, _ := client.Seal(nil, []byte("x"))
			if data, err := open(server, record); string(data) != "x" || err != nil {
				t.Fatalf("round %d, then: data %q, error %v", round, data, err)
			}
		}
		for i := range maxUseless + 1 {
			if _, err := open(server, client.update(nil)); (err != nil) != (i == maxUseless) {
				t.Errorf("KeyUpdate %d in a row: %v", i+1, err)
			}
		}
		checkEnd(t, client, server, unexpectedMessage, errUseless)
	})
}

// Before 2^24 records were sent under a key of AES-GCM it is updated, also within one Seal. A
// secret is used once.
func TestUpdatesItself(t *testing.T) {
	perSuite(t, func(t *testing.T, server, client *Conn) {
		limit := client.suite.limit
		first := client.out.secret
		client.FullRecords()
		client.out.seq, server.in.seq = limit-5, limit-5
		want := pattern(7 * maxPlain)
		records, err := client.Seal(nil, want)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := open(server, records); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%d bytes, error %v, want %d", len(got), err, len(want))
		}
		if client.out.secret == first || client.out.seq != 4 {
			t.Errorf("%d records under the key, want 4, and a new one", client.out.seq)
		}
		if _, err := open(server, client.CloseNotify(nil)); err != io.EOF {
			t.Errorf("error %v, want %v", err, io.EOF)
		}
	})
}

// The side that has ended its output goes on reading, and says nothing more, whatever it is asked.
func TestHalfClose(t *testing.T) {
	perSuite(t, func(t *testing.T, server, client *Conn) {
		if _, err := open(client, server.CloseNotify(nil)); err != io.EOF {
			t.Fatalf("error %v, want %v", err, io.EOF)
		}
		ask := client.out.seal(client.suite, nil, typeHandshake, []byte{keyUpdate, 0, 0, 1, updateRequested})
		client.out.update(client.suite)
		records, err := client.Seal(ask, []byte("data"))
		if err != nil {
			t.Fatal(err)
		}
		if data, err := open(server, records); string(data) != "data" || err != nil {
			t.Errorf("data %q, error %v, want %q and none", data, err, "data")
		}
		if answer := server.CloseNotify(server.Alert(nil)); len(answer) > 0 {
			t.Errorf("an answer of %d bytes, want none", len(answer))
		}
		if _, err := server.Seal(nil, []byte("x")); err != ErrShutdown {
			t.Errorf("error %v, want %v", err, ErrShutdown)
		}
	})
}

// A Conn that has rested, and one that goes on in place of another, go on where they were: within a
// KeyUpdate, with an update that is asked for, while records grow, and between the two ends.
func TestRestAndResume(t *testing.T) {
	for name, change := range map[string]func(t *testing.T, c *Conn) *Conn{
		"rest": func(t *testing.T, c *Conn) *Conn {
			c.Rest()
			if rests := c.Rest(); !rests || c.in.aead != nil || c.out.aead != nil {
				t.Errorf("the second Rest returns %v, want true; or an AEAD is left", rests)
			}
			return c
		},
		"resume": func(t *testing.T, c *Conn) *Conn {
			state, ok := c.State()
			b, err := json.Marshal(state)
			if err == nil {
				err = json.Unmarshal(b, &state)
			}
			to, err2 := Resume(state)
			if err := errors.Join(err, err2); err != nil || !ok {
				t.Fatalf("error %v, movable: %v", err, ok)
			}
			if !bytes.Equal(state.In.Secret, make([]byte, c.suite.hashSize)) {
				t.Error("Resume leaves a secret in the State")
			}
			return to
		},
	} {
		t.Run(name, func(t *testing.T) {
			perSuite(t, func(t *testing.T, server, client *Conn) {
				exchange := func(size int) {
					t.Helper()
					server, client = change(t, server), change(t, client)
					want := pattern(size)
					records, _ := client.Seal(nil, want)
					echo, err := open(server, records)
					records, _ = server.Seal(nil, echo)
					got, err2 := open(client, records)
					if err := errors.Join(err, err2); err != nil || !bytes.Equal(got, want) {
						t.Errorf("%d bytes come back, error %v, want %d", len(got), err, size)
					}
				}
				exchange(50_000)
				if client.Rest() {
					t.Error("Rest returns true at once after a record")
				}
				for _, part := range [][]byte{{keyUpdate, 0}, {0, 1}, {updateRequested}} {
					record := forge(client, inner(typeHandshake, 0, part...)...)
					if data, err := open(server, record); len(data) > 0 || err != nil {
						t.Fatalf("%d bytes, error %v", len(data), err)
					}
					server = change(t, server)
				}
				client.out.update(client.suite)
				exchange(10)
				exchange(300_000)
				if n := int(server.grown); n != growing {
					t.Errorf("%d records have grown, want %d", n, growing)
				}
				_, err := open(client, server.CloseNotify(nil))
				server, client = change(t, server), change(t, client)
				if _, again := client.Open(nil, nil); err != io.EOF || again != io.EOF {
					t.Errorf("the client reads %v, and later %v, want %v", err, again, io.EOF)
				}
				if _, err := server.Seal(nil, []byte("x")); err != ErrShutdown {
					t.Errorf("Seal after close_notify: %v, want %v", err, ErrShutdown)
				}
				_ = server.Refuse(io.ErrNoProgress)
				if _, ok := server.State(); ok {
					t.Error("a Conn has a State after an alert")
				}
			})
		})
	}
}

// The model is crypto/hkdf.
func TestExpand(t *testing.T) {
	for id, newHash := range map[uint16]func() hash.Hash{tls.TLS_AES_128_GCM_SHA256: sha256.New, tls.TLS_AES_256_GCM_SHA384: sha512.New384} {
		s := suites[id]
		secret := pattern(s.hashSize)
		for _, label := range []string{"", "iv", "traffic upd"} {
			for n := range s.hashSize + 1 {
				info := append([]byte{0, byte(n), byte(6 + len(label))}, "tls13 "+label+"\x00"...)
				want, err := hkdf.Expand(newHash, secret, string(info), n)
				if err != nil {
					t.Fatal(err)
				}
				got := make([]byte, n)
				if s.expand(secret, label, got); !bytes.Equal(got, want) {
					t.Errorf("%s, %q, %d bytes: %x, want %x", tls.CipherSuiteName(id), label, n, got, want)
				}
			}
		}
	}
}

func TestErase(t *testing.T) {
	server, client := pair(t, tls.TLS_AES_256_GCM_SHA384)
	if _, err := open(server, forge(client, inner(typeHandshake, 0, keyUpdate, 0)...)); err != nil {
		t.Fatal(err)
	}
	server.Erase()
	if server.in != (half{}) || server.out != (half{}) {
		t.Error("there are secrets after Erase")
	}
}

func TestNewRefuses(t *testing.T) {
	for _, tt := range []struct {
		name        string
		suite       uint16
		read, write int
	}{
		{"a suite of TLS 1.2", tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, 32, 32},
		{"no secret", tls.TLS_AES_128_GCM_SHA256, 0, 32},
		{"secrets of another suite", tls.TLS_AES_128_GCM_SHA256, 48, 48},
		{"one short secret", tls.TLS_AES_256_GCM_SHA384, 48, 32},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if c, err := New(false, tt.suite, make([]byte, tt.read), make([]byte, tt.write)); err == nil || c != nil {
				t.Errorf("%v, error %v, want an error", c, err)
			}
		})
	}
}

func TestDoesNotAllocate(t *testing.T) {
	perSuite(t, func(t *testing.T, server, client *Conn) {
		msg, out := pattern(100), make([]byte, 0, 1000)
		if n := testing.AllocsPerRun(100, func() {
			out, _ = client.Seal(out[:0], msg)
			_, err := server.Open(out[headerSize:headerSize], out)
			if err != nil {
				t.Error(err)
			}
			out = server.Alert(out)
		}); n != 0 {
			t.Errorf("a record allocates %v times, want 0", n)
		}
	})
}

// FuzzOpen gives a server bytes that are no record of its client's, but for the first.
func FuzzOpen(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte("\x17\x03\x03\x00\x13abcdefghijklmnopqrs\x15\x03\x03\x00\x02\x01\x00"))
	f.Add([]byte("\x17\x03\x03\xff\xff"))
	f.Fuzz(func(t *testing.T, stream []byte) {
		server, client := pair(t, tls.TLS_AES_128_GCM_SHA256)
		first, _ := client.Seal(nil, []byte("first"))
		if len(stream) >= headerSize { // what has no header is no record yet
			stream = append(first, stream...)
		} else {
			stream = first
		}
		var data []byte
		var err error
		for len(stream) >= headerSize && err == nil {
			n := min(Size(stream), len(stream))
			data, err = server.Open(data, stream[:n])
			stream = stream[n:]
			if string(data) != "first" {
				t.Fatalf("data %q, want %q", data, "first")
			}
		}
		if err != nil {
			checkEnd(t, client, server, server.alert, err)
		}
	})
}

// FuzzInner gives a server or a client records under the right key with any plaintexts: each is a
// length of two bytes and so many bytes. Data comes out as it is, until an error, which goes with
// an alert. Without one both sides can go on.
func FuzzInner(f *testing.F) {
	for _, tt := range hostile {
		var script []byte
		for _, in := range tt.inners {
			script = append(append(script, byte(len(in)>>8), byte(len(in))), in...)
		}
		f.Add(tt.toClient, script)
	}
	f.Fuzz(func(t *testing.T, toClient bool, script []byte) {
		to, from := pair(t, tls.TLS_AES_128_GCM_SHA256)
		if toClient {
			to, from = from, to
		}
		var got, want []byte
		var err error
		for err == nil && len(script) >= 2 {
			n := min(int(script[0])<<8|int(script[1]), len(script)-2, maxCipher-tagSize)
			in := script[2 : 2+n]
			script = script[2+n:]
			secret := to.in.secret
			got, err = to.Open(got, forge(from, in...))
			if to.in.secret != secret {
				from.out.update(from.suite)
			}
			if end := bytes.TrimRight(in, "\x00"); err == nil && end[len(end)-1] == typeApplication {
				want = append(want, end[:len(end)-1]...)
			}
			if len(to.hand) > msgHeader+maxTicket {
				t.Fatalf("it keeps %d bytes of a message", len(to.hand))
			}
		}
		if !bytes.Equal(got, want) {
			t.Fatalf("data %q, want %q", got, want)
		}
		switch {
		case err == nil:
			records, _ := to.Seal(nil, []byte("answer"))
			if data, err := open(from, records); string(data) != "answer" || err != nil {
				t.Fatalf("data %q, error %v, want %q", data, err, "answer")
			}
		case err != io.EOF && to.alerts:
			checkEnd(t, from, to, to.alert, err)
		}
	})
}

func BenchmarkSeal(b *testing.B) {
	benchmark(b, func(b *testing.B, server, client *Conn, msg []byte) {
		buf := make([]byte, 0, maxPlain+overhead)
		for b.Loop() {
			buf, _ = client.Seal(buf[:0], msg)
		}
	})
}

// BenchmarkOpen opens records in place, or into another buffer. A copy restores each before.
func BenchmarkOpen(b *testing.B) {
	for _, inPlace := range []bool{true, false} {
		b.Run(fmt.Sprintf("in place %v", inPlace), func(b *testing.B) {
			benchmark(b, func(b *testing.B, server, client *Conn, msg []byte) {
				record, _ := client.Seal(nil, msg)
				buf, apart := make([]byte, len(record)), make([]byte, 0, 4*maxPlain)
				for b.Loop() {
					copy(buf, record)
					dst := apart
					if inPlace {
						dst = buf[headerSize:headerSize]
					}
					if _, err := server.Open(dst, buf); err != nil {
						b.Fatal(err)
					}
					server.in.seq--
				}
			})
		})
	}
}

func benchmark(b *testing.B, f func(b *testing.B, server, client *Conn, msg []byte)) {
	for id := range suites {
		for _, size := range []int{64, maxPlain} {
			b.Run(fmt.Sprintf("%s/%d", tls.CipherSuiteName(id), size), func(b *testing.B) {
				server, client := pair(b, id)
				client.FullRecords()
				b.SetBytes(int64(size))
				f(b, server, client, pattern(size))
			})
		}
	}
}

func BenchmarkNew(b *testing.B) {
	for id, s := range suites {
		b.Run(tls.CipherSuiteName(id), func(b *testing.B) {
			secret := make([]byte, s.hashSize)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := New(false, id, secret, secret); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
