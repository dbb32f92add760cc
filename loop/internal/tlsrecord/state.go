package tlsrecord

import (
	"bytes"
	"io"
)

// A State is all that a Conn knows, for one in another process that goes on in its place. It has
// the secrets.
type State struct {
	Client      bool `json:",omitempty"`
	CipherSuite uint16
	In, Out     Direction
	Handshake   []byte `json:",omitempty"` // the beginning of a message
	Grown       uint8  `json:",omitempty"`
	Useless     uint8  `json:",omitempty"`
	Updates     bool   `json:",omitempty"` // the peer has asked for an update of the key of Out
	Ended       bool   `json:",omitempty"` // the peer has sent close_notify
	Shut        bool   `json:",omitempty"` // close_notify has been sent
}

// A Direction is the present key of one half of a connection.
type Direction struct {
	Secret   []byte
	Sequence uint64
}

// State returns a copy of what c knows, or false if an error has ended the connection.
func (c *Conn) State() (State, bool) {
	direction := func(h *half) Direction { return Direction{bytes.Clone(h.secret[:c.suite.hashSize]), h.seq} }
	return State{
		Client: c.client, CipherSuite: c.suite.id,
		In: direction(&c.in), Out: direction(&c.out),
		Handshake: bytes.Clone(c.hand), Grown: c.grown, Useless: c.useless,
		Updates: c.updates, Ended: c.err == io.EOF, Shut: c.shut,
	}, c.err == nil || c.err == io.EOF
}

// Resume returns a Conn that goes on where s ended. The errors are New's. The secrets in s are
// erased.
func Resume(s State) (*Conn, error) {
	c, err := New(s.Client, s.CipherSuite, s.In.Secret, s.Out.Secret)
	clear(s.In.Secret)
	clear(s.Out.Secret)
	if err != nil {
		return nil, err
	}
	c.in.seq, c.out.seq = s.In.Sequence, s.Out.Sequence
	c.hand, c.grown, c.useless = s.Handshake, s.Grown, s.Useless
	c.updates, c.shut = s.Updates, s.Shut
	if s.Ended {
		c.err = io.EOF
	}
	return c, nil
}
