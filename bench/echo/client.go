package main

import (
	"context"
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
	over
)

// A load is a crowd of connections. But for what its cell says, they send as fast as their answers
// come: each has depth messages under way.
type load struct {
	cell
	addr     string
	conns    []net.Conn // none if each message has its own
	phase    atomic.Int32
	messages atomic.Int64 // answered while measuring
	latency  histogram
	mu       sync.Mutex
	failed   error
}

// connect opens n connections. They will be reset when they close, so that no port has to wait.
func connect(addr string, n int) (conns []net.Conn, err error) {
	dialer := net.Dialer{Deadline: time.Now().Add(patience)}
	for len(conns) < n {
		c, err := dialer.Dial("tcp", addr)
		if err != nil {
			closeAll(conns)
			return nil, err
		}
		_ = c.(*net.TCPConn).SetLinger(0)
		conns = append(conns, c)
	}
	return conns, nil
}

func closeAll(conns []net.Conn) {
	for _, c := range conns {
		_ = c.Close()
	}
}

// run drives all connections until ctx is done.
func (l *load) run(ctx context.Context) error {
	var all sync.WaitGroup
	for i := range l.cell.conns {
		all.Go(func() {
			d := &dialogue{load: l}
			if err := d.dispatch(i); err != nil && l.phase.Load() != over {
				l.mu.Lock()
				l.failed = errors.Join(l.failed, err)
				l.mu.Unlock()
			}
			l.messages.Add(d.messages)
			l.mu.Lock()
			l.latency.merge(&d.latency)
			l.mu.Unlock()
		})
	}
	<-ctx.Done()
	l.phase.Store(over)
	for _, c := range l.conns {
		_ = c.SetDeadline(time.Now().Add(time.Second)) // what is under way may come
	}
	all.Wait()
	return l.failed
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
	latency  histogram
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
	frame := header + d.size
	d.at = make([]time.Time, d.depth)
	d.out = make([]byte, frame*d.depth)
	for i := range d.depth {
		binary.BigEndian.PutUint32(d.out[i*frame:], uint32(d.size))
	}
	send, done := d.send, func() {}
	if len(d.out) >= 64<<10 { // more than the sockets take: who writes must not be who reads
		send, done = d.writer()
	}
	defer done()
	if err := send(d.depth); err != nil {
		return err
	}
	in := make([]byte, max(min(max(len(d.out), 4<<10), 64<<10), frame))
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
		if have = copy(in, in[count*frame:have]); count > 0 && d.phase.Load() != over {
			if err := send(count); err != nil {
				return err
			}
		}
		if d.answered == d.sent && d.phase.Load() == over {
			return nil
		}
	}
}

// send sends the next n messages at once.
func (d *dialogue) send(n int) error {
	frame, now := header+d.size, time.Now()
	for i := range n {
		binary.BigEndian.PutUint64(d.out[i*frame+header:], d.sent)
		d.at[d.sent%uint64(d.depth)] = now
		d.sent++
	}
	_, err := d.conn.Write(d.out[:n*frame])
	return err
}

// writer returns a send that has it done by another goroutine, and what ends that. The numbers are
// taken at once, so that what comes can be compared with them.
func (d *dialogue) writer() (send func(n int) error, done func()) {
	frame := header + d.size
	orders := make(chan uint64, d.depth)
	go func() {
		for number := range orders {
			binary.BigEndian.PutUint64(d.out[header:], number)
			if _, err := d.conn.Write(d.out[:frame]); err != nil {
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
	frame, now := header+d.size, time.Now()
	counting := d.phase.Load() == measuring
	for ; len(b) >= frame; b = b[frame:] {
		size, number := binary.BigEndian.Uint32(b), binary.BigEndian.Uint64(b[header:])
		if int(size) != d.size || number != d.answered {
			return count, fmt.Errorf("message %d of %d bytes came back as %d of %d", d.answered, d.size, number, size)
		}
		if counting {
			d.messages++
			d.latency.add(now.Sub(d.at[number%uint64(d.depth)]))
		}
		d.answered++
		count++
	}
	return count, nil
}
