package looptest

import (
	"io"
	"net"
	"syscall"
)

// A Peer is the other end of a connection.
type Peer struct {
	addr   net.Addr
	sock   *socket
	settle func()   // the server's
	tls    *tlsPeer // nil: plain
}

// Addr returns what Conn.RemoteAddr returns for this peer: an *Addr, or what OpenFrom was given.
func (p *Peer) Addr() net.Addr { return p.addr }

// Send feeds the pieces to the server, each as a packet of its own, and waits for what they cause.
func (p *Peer) Send(pieces ...string) {
	for _, s := range pieces {
		p.Write([]byte(s))
	}
}

// Write feeds b as one packet and waits for what it causes. It implements io.Writer; after the
// server has closed the connection it returns syscall.EPIPE.
func (p *Peer) Write(b []byte) (int, error) {
	if p.tls != nil {
		return p.tls.write(b)
	}
	if !p.sock.feed(b) {
		return 0, syscall.EPIPE
	}
	p.settle()
	return len(b), nil
}

// Received returns all that the server has sent since the last call.
func (p *Peer) Received() string {
	if p.tls != nil {
		return p.tls.received()
	}
	return string(p.sock.taken())
}

// Answer makes the peer answer by itself: f is given the bytes that the server sends, as they come,
// and the peer sends back the bytes that f returns. Received returns nothing from then on. f runs
// on a goroutine of the bubble, one call at a time, so that pings are answered during Sleep, too. f
// must not keep its argument, nor call methods of the Peer. Call Answer once, after the handshake
// if there is TLS.
func (p *Peer) Answer(f func(received []byte) (reply []byte)) {
	if p.tls != nil {
		p.tls.answerBy(f)
		return
	}
	p.sock.notify()
	go func() {
		buf := make([]byte, 16<<10)
		for {
			n, err := p.sock.read(buf)
			if err != nil {
				return
			}
			if reply := f(buf[:n]); len(reply) > 0 {
				p.sock.feed(reply)
			}
		}
	}()
	p.settle()
}

// Writes returns how many writes the server has made since the connection was opened.
func (p *Peer) Writes() int { return p.sock.countWrites() }

// Block stops reading: the socket takes room more bytes from the server, then it is full. The
// peer's system acknowledges none of them, as if the peer's window had been closed before: see Ack.
// So a connection that closes waits for the peer, for Server.Timeouts.Close.
func (p *Peer) Block(room int) { p.sock.setRoom(room) }

// Ack has the peer's system acknowledge n of the bytes that wait for the peer while it is blocked,
// though the peer has not read them: there was room in its buffer. To a connection that closes they
// count as arrived.
func (p *Peer) Ack(n int) { p.sock.ack(n) }

// Take reads n of the bytes that wait for the peer while it is blocked, those first that its system
// has acknowledged. As in the kernel, that a few bytes were taken does not mean that the socket
// takes more from the server yet.
func (p *Peer) Take(n int) { p.sock.take(n) }

// Unblock reads again, all that waits and all that comes.
func (p *Peer) Unblock() {
	p.sock.setRoom(unlimited)
	p.settle()
}

// Close closes the connection: the server reads what was fed, then the end.
func (p *Peer) Close() {
	p.closeNotify()
	p.sock.hangUp(io.EOF, false)
	p.settle()
}

// CloseWrite closes one direction, as shutdown(2) does: the server reads the end, and what it sends
// still arrives.
func (p *Peer) CloseWrite() {
	p.closeNotify()
	p.sock.hangUp(io.EOF, true)
	p.settle()
}

// Reset breaks the connection: what was fed and not read is lost.
func (p *Peer) Reset() {
	p.sock.hangUp(syscall.ECONNRESET, false)
	p.settle()
}

// Closed reports whether the server has closed the connection, or refused it.
func (p *Peer) Closed() bool {
	closed, _ := p.sock.closedBy()
	return closed
}

// Lingers reports whether the server has ended its output but not let go of the socket yet.
func (p *Peer) Lingers() bool { return p.Closed() && !p.sock.gone() }

// WasReset reports whether the server closed the connection hard, dropping what the peer had not
// taken.
func (p *Peer) WasReset() bool {
	_, hard := p.sock.closedBy()
	return hard
}

// Reason returns what OnClose was given, and nil before that.
func (p *Peer) Reason() error {
	_, reason := p.sock.finish()
	return reason
}

// Ended reports whether OnClose has been called.
func (p *Peer) Ended() bool {
	over, _ := p.sock.finish()
	return over
}
