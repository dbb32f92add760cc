//go:build linux

package main

import (
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// Phases of a measurement.
const (
	warming int32 = iota
	measuring
	ended
)

const patience = time.Minute

// A load is a crowd of connections. But for what its cell says, they send as fast as their answers
// come: each has depth messages under way.
type load struct {
	cell
	addr     string
	tls      bool
	conns    []net.Conn // none if each message has its own
	phase    atomic.Int32
	messages atomic.Int64 // answered while measuring
	mu       sync.Mutex
	waits    []time.Duration // of messages that are timed
	failed   error
}

// dial connects. The connection will be reset when it closes, so that no port has to wait.
func dial(addr string, secure bool) (net.Conn, error) {
	dialer := net.Dialer{Timeout: patience, KeepAlive: -1}
	if secure {
		return (&tls.Dialer{NetDialer: &dialer, Config: &tls.Config{InsecureSkipVerify: true}}).Dial("tcp", addr)
	}
	return dialer.Dial("tcp", addr)
}

// connect opens n connections. They will be reset when they close, so that no port has to wait.
func connect(addr string, n int, secure bool) (conns []net.Conn, err error) {
	for tries := 0; len(conns) < n; {
		c, err := dial(addr, secure)
		if err != nil && tries < 3000 && len(conns) == 0 { // some programs do not say when they listen
			tries++
			time.Sleep(10 * time.Millisecond)
			continue
		}
		if err != nil {
			closeAll(conns)
			return nil, err
		}
		if raw, ok := c.(interface{ NetConn() net.Conn }); ok {
			_ = raw.NetConn().(*net.TCPConn).SetLinger(0)
		} else {
			_ = c.(*net.TCPConn).SetLinger(0)
		}
		conns = append(conns, c)
	}
	return conns, nil
}

func closeAll(conns []net.Conn) {
	for _, c := range conns {
		_ = c.Close()
	}
}

// frame returns a frame of so many bytes.
func frame(size int) []byte {
	b := make([]byte, header+size)
	binary.BigEndian.PutUint32(b, uint32(size))
	return b
}

// exchange sends a frame and waits for it.
func exchange(c net.Conn, frame, answer []byte) error {
	if _, err := c.Write(frame); err != nil {
		return err
	}
	if _, err := io.ReadFull(c, answer); err != nil {
		return err
	}
	if string(answer) != string(frame) {
		return fmt.Errorf("a message of %d bytes came back as another", len(frame)-header)
	}
	return nil
}

// start drives all connections. over waits for those that have seen the end.
func (l *load) start() (over func() error) {
	var all sync.WaitGroup
	for i := range l.cell.conns {
		all.Go(func() {
			d := &dialogue{load: l}
			err := d.dispatch(i)
			l.mu.Lock()
			defer l.mu.Unlock()
			if err != nil && l.phase.Load() != ended {
				l.failed = errors.Join(l.failed, err)
			}
			l.messages.Add(d.messages)
			l.waits = append(l.waits, d.waits...)
		})
	}
	return func() error {
		l.phase.Store(ended)
		for _, c := range l.conns {
			_ = c.SetDeadline(time.Now().Add(time.Second)) // what is under way may come
		}
		all.Wait()
		return l.failed
	}
}

// A dialogue is what one connection does. Each message has a number, which its answer must have,
// too.
type dialogue struct {
	*load
	conn     net.Conn
	out      []byte
	sent     uint64
	answered uint64
	at       []time.Time // when each message under way was sent
	messages int64
	waits    []time.Duration
}

// dispatch drives the i-th connection.
func (d *dialogue) dispatch(i int) error {
	if d.anew {
		return d.reconnect()
	}
	d.conn = d.conns[i]
	if d.rate > 0 {
		return d.pace(time.Duration(i) * time.Second / time.Duration(d.rate))
	}
	return d.run()
}

func (d *dialogue) run() error {
	size := header + d.size
	d.at = make([]time.Time, d.depth)
	for range d.depth {
		d.out = append(d.out, frame(d.size)...)
	}
	send, done := d.send, func() {}
	if len(d.out) >= 64<<10 { // more than the sockets take: another goroutine must write
		send, done = d.writer()
	}
	defer done()
	if err := send(d.depth); err != nil {
		return err
	}
	in := make([]byte, max(min(max(len(d.out), 4<<10), 64<<10), size))
	for have := 0; ; {
		n, err := d.conn.Read(in[have:])
		if err != nil {
			if d.answered == d.sent && errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		have += n
		count, err := d.receive(in[:have])
		if err != nil {
			return err
		}
		if have = copy(in, in[count*size:have]); count > 0 && d.phase.Load() != ended {
			if err := send(count); err != nil {
				return err
			}
		}
		if d.answered == d.sent && d.phase.Load() == ended {
			return nil
		}
	}
}

// send sends the next n messages at once.
func (d *dialogue) send(n int) error {
	size, now := header+d.size, time.Now()
	for i := range n {
		binary.BigEndian.PutUint64(d.out[i*size+header:], d.sent)
		d.at[d.sent%uint64(d.depth)] = now
		d.sent++
	}
	_, err := d.conn.Write(d.out[:n*size])
	return err
}

// writer returns a send whose writing another goroutine does, and a function that ends it. The
// numbers are taken at once, so that what comes can be compared with them.
func (d *dialogue) writer() (send func(n int) error, done func()) {
	size := header + d.size
	orders := make(chan uint64, d.depth)
	go func() {
		for number := range orders {
			binary.BigEndian.PutUint64(d.out[header:], number)
			if _, err := d.conn.Write(d.out[:size]); err != nil {
				_ = d.conn.Close()
			}
		}
	}()
	send = func(n int) error {
		now := time.Now()
		for range n {
			d.at[d.sent%uint64(d.depth)] = now
			orders <- d.sent
			d.sent++
		}
		return nil
	}
	return send, func() { close(orders) }
}

// receive checks the answers in b and returns how many are whole.
func (d *dialogue) receive(b []byte) (count int, err error) {
	size, now := header+d.size, time.Now()
	counting := d.phase.Load() == measuring
	for ; len(b) >= size; b = b[size:] {
		length, number := binary.BigEndian.Uint32(b), binary.BigEndian.Uint64(b[header:])
		if int(length) != d.size || number != d.answered {
			return count, fmt.Errorf("message %d of %d bytes came back as %d of %d", d.answered, d.size, number, length)
		}
		if counting {
			d.count(now.Sub(d.at[number%uint64(d.depth)]))
		}
		d.answered++
		count++
	}
	return count, nil
}

// count counts an answer. Large messages, and many at once, take the time of the whole load.
func (d *dialogue) count(wait time.Duration) {
	if d.messages++; d.timed() {
		d.waits = append(d.waits, wait)
	}
}

// pace sends a message at fixed times, rate of them a second over all connections, and takes the
// latency from the time at which it was to be sent. So a server that stands still for a moment is
// late for each message of that moment, also for those that wait here.
func (d *dialogue) pace(offset time.Duration) error {
	period := time.Duration(len(d.conns)) * time.Second / time.Duration(d.rate)
	frame, answer := frame(d.size), make([]byte, header+d.size)
	for due := time.Now().Add(offset); d.phase.Load() != ended; due = due.Add(period) {
		time.Sleep(time.Until(due))
		if err := d.numbered(d.conn, frame, answer, due); err != nil {
			return err
		}
	}
	return nil
}

// numbered sends a numbered message, waits for its answer and counts it.
func (d *dialogue) numbered(c net.Conn, frame, answer []byte, due time.Time) error {
	binary.BigEndian.PutUint64(frame[header:], d.sent)
	d.sent++
	if err := exchange(c, frame, answer); err != nil {
		return err
	}
	if d.phase.Load() == measuring {
		d.count(time.Since(due))
	}
	return nil
}

// reconnect makes a connection for each message, and ends it in order. Its latency is that of all.
func (d *dialogue) reconnect() error {
	frame, answer := frame(d.size), make([]byte, header+d.size)
	for failures := 0; d.phase.Load() != ended; {
		begun := time.Now()
		c, err := dial(d.addr, d.tls)
		if err != nil {
			if failures++; d.tls && failures < 10 { // see connect
				continue
			}
			return err
		}
		_ = c.SetDeadline(begun.Add(patience))
		err = d.numbered(c, frame, answer, begun)
		if err == nil {
			_ = c.(interface{ CloseWrite() error }).CloseWrite()
			if _, err = c.Read(answer); errors.Is(err, io.EOF) {
				err = nil
			}
		}
		_ = c.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

// rounds sends n messages on each of 50 connections: depth at once on each, and when all have come
// back the next. So a server always finds several connections readable, as under load. With one
// connection it would sleep and wake for each message, which costs several times as much in Go's
// scheduler as all the rest, and not twice the same.
func rounds(addr string, n, depth, size int) error {
	conns, err := connect(addr, 50, false)
	if err != nil {
		return err
	}
	defer closeAll(conns)
	var out []byte
	for range depth {
		out = append(out, frame(size)...)
	}
	in := make([]byte, len(out))
	for range n / depth {
		for _, c := range conns {
			if _, err := c.Write(out); err != nil {
				return err
			}
		}
		for _, c := range conns {
			if _, err := io.ReadFull(c, in); err != nil {
				return err
			}
		}
	}
	return nil
}
