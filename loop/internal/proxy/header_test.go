package proxy

import (
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/pires/go-proxyproto"
)

func header(t testing.TB, version byte, from, to net.Addr) string {
	b, err := proxyproto.HeaderProxyFromAddrs(version, from, to).Format()
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

var (
	from4 = &net.TCPAddr{IP: net.IPv4(192, 0, 2, 7), Port: 40000}
	to4   = &net.TCPAddr{IP: net.IPv4(198, 51, 100, 1), Port: 443}
	from6 = &net.TCPAddr{IP: net.ParseIP("2001:db8::7"), Port: 40000}
	to6   = &net.TCPAddr{IP: net.ParseIP("2001:db8::1"), Port: 443}
	unixA = &net.UnixAddr{Net: "unix", Name: "/run/a"}
	unixB = &net.UnixAddr{Net: "unix", Name: "/run/b"}
)

func TestParseInPieces(t *testing.T) {
	for _, tt := range []struct {
		name, head, remote, local string
	}{
		{"v1", header(t, 1, from4, to4), "192.0.2.7:40000", "198.51.100.1:443"},
		{"v1 of IPv6", header(t, 1, from6, to6), "[2001:db8::7]:40000", "[2001:db8::1]:443"},
		{"v1 unknown", "PROXY UNKNOWN\r\n", "", ""},
		{"v1 as long as may be", "PROXY UNKNOWN " + strings.Repeat("f", maxV1-16) + "\r\n", "", ""},
		{"v1 unknown with more", "PROXY UNKNOWN ffff::1 ffff::2 1 2\r\n", "", ""},
		{"v2", header(t, 2, from4, to4), "192.0.2.7:40000", "198.51.100.1:443"},
		{"v2 of IPv6", header(t, 2, from6, to6), "[2001:db8::7]:40000", "[2001:db8::1]:443"},
		{"v2 of unix", header(t, 2, unixA, unixB), "/run/a", "/run/b"},
		{"v2 local", "\r\n\r\n\x00\r\nQUIT\n\x20\x00\x00\x00", "", ""},
		{"v2 unspec", "\r\n\r\n\x00\r\nQUIT\n\x21\x00\x00\x00", "", ""},
		{"v2 with TLV", "\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x10\x01\x02\x03\x04\x05\x06\x07\x08\x00\x50\x01\xbb\x04\x00\x01x",
			"1.2.3.4:80", "5.6.7.8:443"},
		{"v2 as long as may be", "\r\n\r\n\x00\r\nQUIT\n\x21\x11\x0f\xf0\x01\x02\x03\x04\x05\x06\x07\x08\x00\x50\x01\xbb\x04\x0f\xe1" +
			strings.Repeat("x", 0xfe1), "1.2.3.4:80", "5.6.7.8:443"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for k := range len(tt.head) {
				if _, n, err := ParseHeader([]byte(tt.head[:k]), MaxHeader); n != 0 || err != nil {
					t.Fatalf("%d of %d bytes: %d, %v", k, len(tt.head), n, err)
				}
			}
			h, n, err := ParseHeader([]byte(tt.head+"data"), MaxHeader)
			if err != nil || n != len(tt.head) {
				t.Fatalf("%d of %d bytes, %v", n, len(tt.head), err)
			}
			if text(h.Remote) != tt.remote || text(h.Local) != tt.local {
				t.Errorf("from %v to %v", h.Remote, h.Local)
			}
		})
	}
}

func text(a net.Addr) string {
	if a == nil {
		return ""
	}
	return a.String()
}

func TestBadHeaders(t *testing.T) {
	for _, tt := range []struct{ name, head, want string }{
		{"none", "hello", "no header"},
		{"almost", "PROXX TCP4 ", "no header"},
		{"v1 without end", "PROXY TCP4 " + strings.Repeat("1", 100), "does not end"},
		{"v1 that has no end in time", "PROXY UNKNOWN " + strings.Repeat("f", maxV1-14), "does not end"},
		{"v1 that ends too late", "PROXY UNKNOWN " + strings.Repeat("f", maxV1-15) + "\r\n", "does not end"},
		{"v1 with a bad port", "PROXY TCP4 1.2.3.4 5.6.7.8 99999 1\r\n", "port"},
		{"v1 with a bad address", "PROXY TCP4 1.2.3 5.6.7.8 1 1\r\n", "address"},
		{"v1 of nothing", "PROXY\r\n", "PROXY protocol"},
		{"v2 too long", "\r\n\r\n\x00\r\nQUIT\n\x21\x11\xff\xff", "at most 4096"},
		{"v2 too long by a byte", "\r\n\r\n\x00\r\nQUIT\n\x21\x11\x0f\xf1", "at most 4096"},
		{"v2 too short", "\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x02xx", "length"},
		{"v2 of another version", "\r\n\r\n\x00\r\nQUIT\n\x31\x11\x00\x00", "version"},
		{"v2 of datagrams", "\r\n\r\n\x00\r\nQUIT\n\x21\x12\x00\x0c" + strings.Repeat("x", 12), "datagrams"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if _, _, err := ParseHeader([]byte(tt.head), 4096); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v, want something with %q", err, tt.want)
			}
		})
	}
}

func TestLooks(t *testing.T) {
	for head, want := range map[string]bool{
		header(t, 1, from4, to4): true, header(t, 2, from4, to4): true, "PROXY ": true,
		"PROXY": false, "P": false, "": false, "\r\n\r\n": false, "GET /": false, "PROXY:": false, "\r\n\r\nx": false,
	} {
		if got := LooksLikeHeader([]byte(head)); got != want {
			t.Errorf("%q looks like a header: %v, want %v", head, got, want)
		}
	}
}

const sigV2 = "\r\n\r\n\x00\r\nQUIT\n"

// What a balancer notes reaches us, whatever it knows of the addresses.
func TestNotes(t *testing.T) {
	note := "\x02\x00\x04host" + "\x05\x00\x02id"
	long := "\xe0\xff\xfc" + strings.Repeat("x", 0xfffc)
	for _, tt := range []struct {
		name, head, remote, notes string
	}{
		{"TCP", sigV2 + "\x21\x11\x00\x18\x01\x02\x03\x04\x05\x06\x07\x08\x00\x50\x01\xbb" + note, "1.2.3.4:80", "2host 5id "},
		{"unspec", sigV2 + "\x21\x00\x00\x0c" + note, "", "2host 5id "},
		{"unspec and nothing", sigV2 + "\x21\x00\x00\x00", "", ""},
		{"unspec as long as may be", sigV2 + "\x21\x00\xff\xff" + long, "", "224" + long[3:] + " "},
		{"local", sigV2 + "\x20\x00\x00\x0c" + note, "", "2host 5id "},
		{"local with less than its family's addresses", sigV2 + "\x20\x11\x00\x02xx", "", ""},
	} {
		h, n, err := ParseHeader([]byte(tt.head+"data"), MaxHeader)
		var notes strings.Builder
		for _, tlv := range h.TLVs {
			fmt.Fprintf(&notes, "%d%s ", tlv.Type, tlv.Value)
		}
		if err != nil || n != len(tt.head) || text(h.Remote) != tt.remote || notes.String() != tt.notes {
			t.Errorf("%s: %d of %d bytes, from %q, %d bytes of notes, %v", tt.name, n, len(tt.head), text(h.Remote), notes.Len(), err)
		}
	}
	if _, _, err := ParseHeader([]byte(sigV2+"\x21\x00\x00\x04\x02\x00\x04h"), MaxHeader); err == nil {
		t.Error("a note that is longer than the header is taken")
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(header(f, 1, from4, to4)))
	f.Add([]byte(header(f, 2, from6, to6)))
	f.Add([]byte(header(f, 2, unixA, unixB)))
	f.Add([]byte("PROXY UNKNOWN\r\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, n, err := ParseHeader(b, MaxHeader)
		if n < 0 || n > len(b) || n > MaxHeader || err != nil && n != 0 {
			t.Fatalf("%d of %d bytes, %v", n, len(b), err)
		}
		if n == 0 && err == nil && len(b) >= MaxHeader {
			t.Fatalf("wants more than %d bytes", len(b))
		}
		if n > 0 {
			_ = text(h.Remote) + text(h.Local)
			if again, m, err := ParseHeader(b[:n], MaxHeader); m != n || err != nil || text(again.Remote) != text(h.Remote) {
				t.Fatalf("not the same without what follows: %d, %v", m, err)
			}
		}
	})
}
