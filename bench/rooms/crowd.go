//go:build linux

package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gobwas/ws"
	"github.com/gobwas/ws/wsutil"
)

// A crowd is all the clients: half of the members of each room are on each process.
type crowd struct {
	contender string
	addrs     []string
	o         options
	members   []*member

	delivered atomic.Int64
	failed    atomic.Pointer[string]
}

// A member is one client: a goroutine that reads.
type member struct {
	crowd *crowd
	side  int
	room  int
	conn  net.Conn
	in    *bufio.Reader

	mu            sync.Mutex
	across, local []time.Duration
}

func newCrowd(contender string, addrs []string, o options) *crowd {
	c := &crowd{contender: contender, addrs: addrs, o: o}
	for i := range o.conns {
		c.members = append(c.members, &member{crowd: c, side: i / o.rooms % 2, room: i % o.rooms})
	}
	return c
}

func (c *crowd) connect() error {
	slots, errs := make(chan struct{}, 32), make(chan error, len(c.members))
	for _, m := range c.members {
		slots <- struct{}{}
		go func() {
			errs <- m.open()
			<-slots
		}()
	}
	for range c.members {
		if err := <-errs; err != nil {
			return err
		}
	}
	for _, m := range c.members {
		go m.read()
	}
	return nil
}

func (m *member) open() error {
	path := "/ws?room=" + strconv.Itoa(m.room)
	conn, br, _, err := (ws.Dialer{ReadBufferSize: 512, WriteBufferSize: 512}).Dial(context.Background(), "ws://"+m.crowd.addrs[m.side]+path)
	if err != nil {
		return err
	}
	m.conn = conn
	var in io.Reader = conn
	if br != nil {
		rest, _ := br.Peek(br.Buffered())
		in = io.MultiReader(bytes.NewReader(append([]byte(nil), rest...)), conn)
	}
	m.in = bufio.NewReaderSize(in, 1024)
	ready := "joined"
	if m.crowd.contender == "centrifuge" {
		ready = `"subscribe":`
		if err := wsutil.WriteClientText(conn, []byte(`{"id":1,"connect":{}}`)); err != nil {
			return err
		}
		if err := wsutil.WriteClientText(conn, fmt.Appendf(nil, `{"id":2,"subscribe":{"channel":"r%d"}}`, m.room)); err != nil {
			return err
		}
	}
	for {
		p, err := m.frame(nil)
		if err != nil {
			return err
		}
		if bytes.Contains(p, []byte(ready)) {
			return nil
		}
		if bytes.Contains(p, []byte(`"error"`)) {
			return fmt.Errorf("refused: %s", p)
		}
	}
}

func (m *member) frame(buf []byte) ([]byte, error) {
	h, err := ws.ReadHeader(m.in)
	if err != nil {
		return nil, err
	}
	if int64(cap(buf)) < h.Length {
		buf = make([]byte, h.Length)
	}
	_, err = io.ReadFull(m.in, buf[:h.Length])
	return buf[:h.Length], err
}

var stamp = []byte(`"t":"`)

// read takes what comes: a frame may have several messages.
func (m *member) read() {
	var buf []byte
	for {
		p, err := m.frame(buf)
		if err != nil {
			return
		}
		buf = p[:cap(p)]
		now := time.Now().UnixNano()
		for {
			i := bytes.Index(p, stamp)
			if i < 0 {
				break
			}
			p = p[i+len(stamp):]
			m.take(p, now)
		}
	}
}

// take takes a message: side and time.
func (m *member) take(p []byte, now int64) {
	text, _, _ := strings.Cut(string(p[:min(len(p), 40)]), `"`)
	side, at, _ := strings.Cut(text, ":")
	ns, err := strconv.ParseInt(at, 10, 64)
	if err != nil {
		return
	}
	m.crowd.delivered.Add(1)
	m.mu.Lock()
	defer m.mu.Unlock()
	if side == strconv.Itoa(m.side) {
		m.local = append(m.local, time.Duration(now-ns))
	} else {
		m.across = append(m.across, time.Duration(now-ns))
	}
}

// talk has members talk for a time, and waits until all was delivered or nothing more comes.
func (c *crowd) talk(length time.Duration) (said int) {
	const every = 2 * time.Millisecond
	before := c.delivered.Load()
	began := time.Now()
	pad := strings.Repeat("x", c.o.size)
	for time.Since(began) < length {
		for due := int(time.Since(began).Seconds() * float64(c.o.rate)); said < due; said++ {
			m := c.members[(said*7)%len(c.members)]
			data := fmt.Sprintf(`{"t":"%d:%d","p":"%s"}`, m.side, time.Now().UnixNano(), pad)
			if c.contender == "centrifuge" {
				data = fmt.Sprintf(`{"id":%d,"publish":{"channel":"r%d","data":%s}}`, said+10, m.room, data)
			}
			if err := wsutil.WriteClientText(m.conn, []byte(data)); err != nil {
				text := err.Error()
				c.failed.Store(&text)
			}
		}
		time.Sleep(every)
	}
	want := before + int64(said*(c.o.conns/c.o.rooms))
	for end := time.Now().Add(20 * time.Second); c.delivered.Load() < want && time.Now().Before(end); {
		time.Sleep(10 * time.Millisecond)
	}
	return said
}

func (c *crowd) reset() {
	c.delivered.Store(0)
	for _, m := range c.members {
		m.mu.Lock()
		m.across, m.local = nil, nil
		m.mu.Unlock()
	}
}

func (c *crowd) late(across bool) (all []time.Duration) {
	for _, m := range c.members {
		m.mu.Lock()
		if across {
			all = append(all, m.across...)
		} else {
			all = append(all, m.local...)
		}
		m.mu.Unlock()
	}
	return all
}

func (c *crowd) fault() string {
	if f := c.failed.Load(); f != nil {
		return *f
	}
	return "no fault seen"
}

func (c *crowd) close() {
	for _, m := range c.members {
		if m.conn != nil {
			m.conn.Close()
		}
	}
}
