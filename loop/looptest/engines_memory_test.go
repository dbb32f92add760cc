package looptest

import (
	"io"
	"net"
	"syscall"
	"testing"

	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop/internal/engine"
)

// enginePeer is a Peer as a connection, from whose socket nobody reads but the test.
type enginePeer struct{ sock *socket }

func connectInMemory(t *testing.T, e engine.Engine, _ string) (net.Conn, otherEnd) {
	t.Helper()
	m := e.(*engineRig).Engine.(*memory)
	ln, err := m.Listen(t.Context(), net.ListenConfig{}, "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	peers := make(chan *Peer, 1)
	go func() {
		p, err := m.dial(ln.Addr(), m.newAddr())
		if err != nil {
			t.Errorf("dial: %v", err)
		}
		peers <- p
	}()
	nc, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	p := enginePeer{testkit.Receive(t, "the peer", peers).sock}
	p.sock.notify()
	p.sock.setRoom(sendBuffer)
	return nc, p
}

func (p enginePeer) Write(b []byte) (int, error) {
	if !p.sock.feed(b) {
		return 0, syscall.EPIPE
	}
	return len(b), nil
}

func (p enginePeer) Read(b []byte) (int, error) {
	n, err := p.sock.read(b)
	p.sock.mu.Lock()
	defer p.sock.mu.Unlock()
	if err != nil && p.sock.hard {
		return n, syscall.ECONNRESET
	}
	p.sock.room += n
	p.sock.acknowledge(n)
	p.sock.offer()
	return n, err
}

func (p enginePeer) CloseWrite() error { p.sock.hangUp(io.EOF, true); return nil }
func (p enginePeer) Close() error      { p.sock.hangUp(io.EOF, false); return nil }
func (p enginePeer) Reset()            { p.sock.hangUp(syscall.ECONNRESET, false) }

// enginePacketPeer is a UDPPeer whose Read waits.
type enginePacketPeer struct {
	*UDPPeer
	t   testing.TB
	net *datagrams
}

func dialPacketInMemory(t *testing.T, e engine.Engine, to net.Addr) packetPeer {
	n := &e.(*engineRig).Engine.(*memory).datagrams
	return &enginePacketPeer{n.newPeer(to), t, n}
}

func (p *enginePacketPeer) LocalAddr() net.Addr { return net.UDPAddrFromAddrPort(p.addr) }

func (p *enginePacketPeer) Write(b []byte) (int, error) {
	p.net.carry(func() { p.port.arrive(string(b), p.addr) })
	return len(b), nil
}

func (p *enginePacketPeer) Read(b []byte) (n int, err error) {
	testkit.Eventually(p.t, "a datagram", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		if len(p.got) == 0 {
			return false
		}
		n = copy(b, p.got[0])
		p.got = p.got[1:]
		return true
	})
	return n, nil
}
