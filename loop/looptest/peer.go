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

// Addr returns the address that Conn.RemoteAddr returns for this peer: an *Addr, or the argument of
// OpenFrom.
func (p *Peer) Addr() net.Addr { return p.addr }

// Send sends the pieces to the server, each as a separate packet, and waits for the effects. The
// server reads up to 256 KiB at once. It reads packets together if they had to wait for a stalled
// loop or a paused connection.
func (p *Peer) Send(pieces ...string) {
	for _, s := range pieces {
		p.Write([]byte(s))
	}
}

// Write sends b as one packet and waits for the effects. It implements io.Writer. After the server
// has closed the connection, it returns syscall.EPIPE.
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

// Received returns everything that the server has sent since the last call.
func (p *Peer) Received() string {
	if p.tls != nil {
		return p.tls.received()
	}
	return string(p.sock.taken())
}

// Answer makes the peer answer automatically: it passes f the bytes that the server sends, as they
// arrive, and sends back the bytes that f returns. From then on Received returns nothing. f runs on
// a goroutine of the bubble, one call at a time, so that pings are answered during Sleep, too. f
// must not retain its argument or call methods of the Peer. Call Answer once, and after the
// handshake if there is TLS.
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

// Writes returns the number of writes that the server has made since the connection was opened.
func (p *Peer) Writes() int { return p.sock.countWrites() }

// Block makes the peer stop reading: the socket accepts room more bytes from the server, then it is
// full. The peer's system acknowledges none of them, as if the peer's receive window had already
// been closed; see Ack. So a connection that is closing waits for the peer, for
// Server.Timeouts.Close.
func (p *Peer) Block(room int) { p.sock.setRoom(room) }

// Ack makes the peer's system acknowledge n of the bytes that wait for the peer while it is
// blocked: the peer has not read them, but its receive buffer had room. For a connection that is
// closing, they count as delivered.
func (p *Peer) Ack(n int) { p.sock.ack(n) }

// Take makes a blocked peer read n of the bytes that wait for it, starting with those that its
// system has acknowledged. As with the kernel, the socket may not accept more from the server after
// only a few bytes were read.
func (p *Peer) Take(n int) { p.sock.take(n) }

// Unblock makes the peer read again, both the waiting bytes and later ones.
func (p *Peer) Unblock() {
	p.sock.setRoom(unlimited)
	p.settle()
}

// Close closes the connection: the server reads what was sent, then the end of the stream. If Block
// has left output of the server unread, Close resets the connection, as Reset does.
func (p *Peer) Close() {
	p.closeNotify()
	p.sock.hangUp(io.EOF, false)
	p.settle()
}

// CloseWrite closes one direction, as shutdown(2) does: the server reads the end of the stream, and
// its output still arrives.
func (p *Peer) CloseWrite() {
	p.closeNotify()
	p.sock.hangUp(io.EOF, true)
	p.settle()
}

// Reset resets the connection. Data that the server has not read is lost. After CloseWrite, the
// server learns of it when it writes.
func (p *Peer) Reset() {
	p.sock.hangUp(syscall.ECONNRESET, false)
	p.settle()
}

// Closed reports whether the server has closed or refused the connection, or ended its output.
func (p *Peer) Closed() bool {
	closed, _ := p.sock.closedBy()
	return closed
}

// Lingers reports whether the server has ended its output but not released the socket yet.
func (p *Peer) Lingers() bool { return p.Closed() && !p.sock.gone() }

// WasReset reports whether the server reset the connection, discarding what the peer had not read.
func (p *Peer) WasReset() bool {
	_, hard := p.sock.closedBy()
	return hard
}

// Reason returns the error that OnClose got, or nil before OnClose.
func (p *Peer) Reason() error {
	_, reason := p.sock.finish()
	return reason
}

// Ended reports whether OnClose has been called.
func (p *Peer) Ended() bool {
	over, _ := p.sock.finish()
	return over
}
