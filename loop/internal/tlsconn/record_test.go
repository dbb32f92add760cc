package tlsconn

import "testing"

// In a handshake crypto/tls is given whole records, or at once what is none.
func TestHandshakeReady(t *testing.T) {
	const alert = "\x15\x03\x03\x00\x02\x02\x28"
	for input, want := range map[string]int{
		"": 0, "\x16": 0, "\x16\x03\x03\x00": 0, "\x16\x03\x03\x00\x02\x01": 0, // too little
		"\x16\x03\x03\x00\x02\x01\x00": 7, alert + alert: 14, alert + "\x16\x03\x03\x00": 7,
		"\x16\x03\x03\xff\xff": 5, // too long
		"220 ":                 0, "220 r": 5, "220 ready\r\n": 11, alert + "220 ready\r\n": 7,
	} {
		if got := handshakeReady([]byte(input)); got != want {
			t.Errorf("%q: %d, want %d", input, got, want)
		}
	}
}
