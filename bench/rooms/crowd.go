//go:build linux

package main

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/loopwheel/loopwheel/bench/internal/wsclient"
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
	conn  *wsclient.Conn

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

func (m *member) open() (err error) {
	if m.conn, err = wsclient.Dial("ws://" + m.crowd.addrs[m.side] + "/ws?room=" + strconv.Itoa(m.room)); err != nil {
		return err
	}
	ready := "joined"
	if m.crowd.contender == "centrifuge" {
		ready = `"subscribe":`
		if err := m.conn.Say([]byte(`{"id":1,"connect":{}}`)); err != nil {
			return err
		}
		if err := m.conn.Say(fmt.Appendf(nil, `{"id":2,"subscribe":{"channel":"r%d"}}`, m.room)); err != nil {
			return err
		}
	}
	for {
		p, err := m.conn.Read()
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

var stamp = []byte(`"t":"`)

// read takes what comes: a frame may have several messages.
func (m *member) read() {
	for {
		p, err := m.conn.Read()
		if err != nil {
			return
		}
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
			if err := m.conn.Say([]byte(data)); err != nil {
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
