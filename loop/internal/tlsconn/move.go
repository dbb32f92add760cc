package tlsconn

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/loopwheel/loopwheel/loop/internal/engine"
	"github.com/loopwheel/loopwheel/loop/internal/tlsrecord"
)

// This file moves an open Conn: to another loop, by Leave and Arrive, or to another process, by
// Leave, Saved and Resume.

// Leave takes c off its loop, on which it is called, but not within a method of the Host. From then
// on c may only be used by Arrive, Saved and Abandon. What the Host was to call soon, GoOn, it must
// not call any more. False: c is not open, or its raw socket has gone; nothing has happened.
func (c *Conn) Leave() bool {
	if c.state != open && c.state != ended || c.lost {
		return false
	}
	c.disarm()
	c.shared.forget(c)
	for _, b := range []*[]byte{&c.in, &c.out} { // they belong to the loop's pool
		own := slices.Clone(*b)
		c.release(b)
		*b = own
	}
	c.shared = nil
	return true
}

// Queued reports whether the Host is to call GoOn soon.
func (c *Conn) Queued() bool { return c.queued }

// Arrive resumes c after Leave. It is called on the new loop. sock is the raw socket there,
// paused if it was paused before. The Host gets nothing until it calls GoOn, for which RunLater is
// called.
func (c *Conn) Arrive(shared *Shared, sock engine.Socket, host Host) {
	c.shared, c.sock, c.host = shared, sock, host
	c.in, c.out = shared.extend(nil, c.in), shared.extend(nil, c.out)
	if c.records != nil {
		c.crypt()
	}
	c.queued = false
	c.later()
	if c.hostWaits {
		c.arm()
	}
	c.flush()
}

// closeNotify is the size of close_notify in TLS 1.3: an alert of two bytes, its type, and a tag.
const closeNotify = headerSize + 2 + 1 + 16

// A moved is a Conn on its way to another process. It has the secrets.
type moved struct {
	Records   tlsrecord.State
	Settled   settled
	Input     []byte `json:",omitempty"` // ciphertext that was read, and not decrypted
	Output    []byte `json:",omitempty"` // ciphertext that the socket has not taken
	Plain     int    `json:",omitempty"` // as in Conn
	Owed      int    `json:",omitempty"`
	FinQueued bool   `json:",omitempty"`
}

// Saved returns what Resume needs of c, which has left its loop, is Movable and goes on by one of
// Resume, Arrive and Abandon. ahead is what was read of the raw socket and not handed over. The
// state has the secrets: the caller must erase it. Plaintext that Write has not counted yet must be
// written again, first, after Resume.
func (c *Conn) Saved(ahead []byte) []byte {
	m := moved{Settled: settledOf(c.settled), Input: slices.Concat(c.in, ahead), Output: c.out[c.sent:],
		Plain: c.plain, Owed: c.dataOwed, FinQueued: c.finQueued}
	m.Records, _ = c.records.State()
	state, _ := json.Marshal(m) // of numbers and bytes
	clear(m.Records.In.Secret)
	clear(m.Records.Out.Secret)
	return state
}

// Abandon ends c, which has left its loop. Any goroutine may call it.
func (c *Conn) Abandon() {
	c.state = closed
	c.erase()
}

// Movable reports whether c can move to another process: not before the handshake is done, nor with
// what crypto/tls keeps to itself, such as TLS 1.2.
func (c *Conn) Movable() bool { return c.mayDetach() == nil }

// Settled returns what StateIn needs of c, which is Movable: no keys, and nothing to resume.
func (c *Conn) Settled() []byte {
	state, _ := json.Marshal(moved{Settled: settledOf(c.settled)}) // of numbers and bytes
	return state
}

// StateIn returns what the handshake has settled, of what Saved or Settled has returned.
func StateIn(state []byte) (tls.ConnectionState, bool) {
	var m moved
	if json.Unmarshal(state, &m) != nil {
		return tls.ConnectionState{}, false
	}
	s, err := m.Settled.state()
	if err != nil {
		return tls.ConnectionState{}, false
	}
	return *s, true
}

// Resume returns a Conn that goes on where Saved found another one, maybe in another process. sock
// is the raw socket, which is read. The Host gets nothing until it calls GoOn, for which RunLater
// is called: what it wants paused it pauses before. ExportKeyingMaterial does not work any more:
// its secret stays with crypto/tls. An error: state is not from Saved, or of a version that knows
// more.
func Resume(shared *Shared, state []byte, sock engine.Socket, host Host) (*Conn, error) {
	var m moved
	if err := json.Unmarshal(state, &m); err != nil {
		return nil, fmt.Errorf("tls: the state of a connection that moves: %w", err)
	}
	records, err := tlsrecord.Resume(m.Records)
	if err != nil {
		return nil, err
	}
	settled, err := m.Settled.state()
	if err != nil {
		return nil, err
	}
	c := &Conn{
		protocol: protocol{records: records, settled: settled},
		state:    open,
		shut:     m.Records.Shut,
		dataOwed: m.Owed,
		in:       m.Input, out: m.Output, plain: m.Plain, finQueued: m.FinQueued,
	}
	if m.Records.Shut {
		c.notify = closeNotify
	}
	if m.Records.Ended {
		c.state, c.keepsWriting, c.err = ended, true, io.EOF
	}
	c.Arrive(shared, sock, host)
	return c, nil
}

// A settled is a tls.ConnectionState of TLS 1.3 without what cannot move. Chains are positions in
// Certificates, whose first Peer ones are the peer's.
type settled struct {
	DidResume, ECHAccepted, HelloRetryRequest bool
	CipherSuite                               uint16
	CurveID                                   tls.CurveID
	NegotiatedProtocol, ServerName            string
	Certificates                              [][]byte `json:",omitempty"`
	Peer                                      int      `json:",omitempty"`
	Chains                                    [][]int  `json:",omitempty"`
	Timestamps                                [][]byte `json:",omitempty"`
	OCSPResponse                              []byte   `json:",omitempty"`
}

func settledOf(s *tls.ConnectionState) settled {
	m := settled{s.DidResume, s.ECHAccepted, s.HelloRetryRequest, s.CipherSuite, s.CurveID, s.NegotiatedProtocol, s.ServerName,
		nil, len(s.PeerCertificates), nil, s.SignedCertificateTimestamps, s.OCSPResponse}
	certs := slices.Clone(s.PeerCertificates)
	for _, chain := range s.VerifiedChains {
		var places []int
		for _, cert := range chain {
			i := slices.IndexFunc(certs, cert.Equal)
			if i < 0 {
				i, certs = len(certs), append(certs, cert)
			}
			places = append(places, i)
		}
		m.Chains = append(m.Chains, places)
	}
	for _, cert := range certs {
		m.Certificates = append(m.Certificates, cert.Raw)
	}
	return m
}

// withoutExport is a state whose ExportKeyingMaterial returns an error. That of one that is made by
// hand panics.
var withoutExport = tls.Client(nil, &tls.Config{Renegotiation: tls.RenegotiateOnceAsClient}).ConnectionState()

var errSettled = errors.New("tls: the state of a connection that moves has certificates that are none of it")

func (m settled) state() (*tls.ConnectionState, error) {
	s := withoutExport
	s.Version, s.HandshakeComplete, s.TLSUnique = tls.VersionTLS13, true, nil
	s.DidResume, s.ECHAccepted, s.HelloRetryRequest = m.DidResume, m.ECHAccepted, m.HelloRetryRequest
	s.CipherSuite, s.CurveID, s.NegotiatedProtocol, s.ServerName = m.CipherSuite, m.CurveID, m.NegotiatedProtocol, m.ServerName
	s.SignedCertificateTimestamps, s.OCSPResponse = m.Timestamps, m.OCSPResponse
	var certs []*x509.Certificate
	for _, der := range m.Certificates {
		cert, err := x509.ParseCertificate(der)
		if err != nil {
			return nil, err
		}
		certs = append(certs, cert)
	}
	if m.Peer < 0 || m.Peer > len(certs) {
		return nil, errSettled
	}
	s.PeerCertificates = certs[:m.Peer:m.Peer]
	for _, places := range m.Chains {
		var chain []*x509.Certificate
		for _, i := range places {
			if i < 0 || i >= len(certs) {
				return nil, errSettled
			}
			chain = append(chain, certs[i])
		}
		s.VerifiedChains = append(s.VerifiedChains, chain)
	}
	return &s, nil
}
