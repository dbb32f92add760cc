package tlsconn

import (
	"bytes"
	"crypto/fips140"
	"crypto/tls"
	"encoding/hex"
	"io"

	"github.com/loopwheel/loopwheel/loop/internal/tlsrecord"
)

// Of a connection of TLS 1.3 crypto/tls only has the handshake. It tells the two secrets of
// application data by the key log, and with them package tlsrecord goes on. The tls.Conn is
// dropped. crypto/tls keeps connections of TLS 1.2; clients with a ClientSessionCache, as tickets
// need a secret that is in no key log; and all in FIPS 140-3 mode, whose module knows nothing of
// tlsrecord.

// A keyLog is the KeyLogWriter of one handshake. The goroutine of the handshake owns it.
type keyLog struct {
	user           io.Writer // the user's, or nil
	client, server []byte    // application_traffic_secret_0 of RFC 8446, section 7.1
	fullRecords    bool      // DynamicRecordSizingDisabled, which goes with it
}

// Write implements io.Writer. A line is a label, the client's random number and a secret (RFC
// 9850).
func (k *keyLog) Write(line []byte) (int, error) {
	label, rest, _ := bytes.Cut(bytes.TrimSuffix(line, []byte("\n")), []byte(" "))
	_, secret, _ := bytes.Cut(rest, []byte(" "))
	switch string(label) {
	case "CLIENT_TRAFFIC_SECRET_0":
		k.client, _ = hex.AppendDecode(nil, secret)
	case "SERVER_TRAFFIC_SECRET_0":
		k.server, _ = hex.AppendDecode(nil, secret)
	}
	if k.user != nil {
		return k.user.Write(line)
	}
	return len(line), nil
}

// config returns what the handshake is given: cfg, or a copy with a key log of its own.
func (h *handshake) config(cryptoTLS bool) *tls.Config {
	cfg := h.cfg
	if cryptoTLS || h.client && cfg.ClientSessionCache != nil || fips140.Enabled() {
		return cfg
	}
	if h.client {
		return h.logged(cfg)
	}
	// This has cfg make the ticket keys that it makes itself, and replace old ones. So the copies
	// for all handshakes have the same.
	_, _ = cfg.DecryptTicket(nil, tls.ConnectionState{})
	own := h.logged(cfg)
	if hook := cfg.GetConfigForClient; hook != nil {
		own.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			cfg, err := hook(hello)
			if cfg == nil || err != nil {
				return cfg, err
			}
			return h.logged(cfg), nil
		}
	}
	return own
}

// logged returns a copy of cfg that has the key log of h.
func (h *handshake) logged(cfg *tls.Config) *tls.Config {
	own := cfg.Clone()
	own.KeyLogWriter = &h.keys
	h.keys.user, h.keys.fullRecords = cfg.KeyLogWriter, cfg.DynamicRecordSizingDisabled
	return own
}

// A protocol is what carries a connection on after its handshake.
type protocol struct {
	tls     *tls.Conn            // nil with records
	records *tlsrecord.Conn      // nil with tls
	settled *tls.ConnectionState // with records
}

// takeOver returns tlsrecord in place of tc, which has finished the handshake, if that is possible.
func (h *handshake) takeOver(tc *tls.Conn) protocol {
	k := &h.keys
	state := tc.ConnectionState()
	if state.Version != tls.VersionTLS13 || k.client == nil {
		return protocol{tls: tc}
	}
	read, write := k.client, k.server
	if h.client {
		read, write = write, read
	}
	records, err := tlsrecord.New(h.client, state.CipherSuite, read, write)
	if err != nil {
		return protocol{tls: tc} // a cipher suite that crypto/tls has learnt since
	}
	if k.fullRecords {
		records.FullRecords()
	}
	if !h.client {
		records.Sent(h.out) // a client has sent nothing under the new key
	}
	return protocol{records: records, settled: &state}
}

// crypt returns the records, to open or seal some.
func (c *Conn) crypt() *tlsrecord.Conn {
	if c.place == 0 {
		c.shared.wake(c)
	}
	return c.records
}

// erase ends the use of secrets.
func (p protocol) erase() {
	if p.records != nil {
		p.records.Erase()
	}
}
