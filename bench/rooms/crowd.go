//go:build linux

package main

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/loopwheel/loopwheel/bench/internal/measure"
)

// A crowd is all the clients. The members of each room are spread over the processes.
type crowd struct {
	*options
	contender string
	members   []*member
	said      int // so far, in rounds over the rooms

	delivered atomic.Int64
	failed    atomic.Pointer[error] // the first fault
}

// A member is one client: a goroutine that reads.
type member struct {
	crowd      *crowd
	addr       string
	side, room int
	conn       *wsConn

	mu            sync.Mutex
	next          int // the number of the message that must come
	across, local []time.Duration
}

func newCrowd(contender string, servers []*measure.Process, o *options) *crowd {
	c := &crowd{options: o, contender: contender}
	for i := range o.conns {
		side := i / o.rooms % len(servers)
		c.members = append(c.members, &member{crowd: c, addr: servers[side].Addr, side: side, room: i % o.rooms})
	}
	return c
}

// connect opens all connections, some at a time, and waits until each is in its room.
func (c *crowd) connect() error {
	slots, errs := make(chan struct{}, 32), make([]error, len(c.members))
	var all sync.WaitGroup
	for i, m := range c.members {
		slots <- struct{}{}
		all.Go(func() {
			errs[i] = m.open()
			<-slots
		})
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	for _, m := range c.members {
		go m.read()
	}
	return nil
}

func (m *member) open() (err error) {
	if m.conn, err = dial("ws://" + m.addr + "/ws?room=" + strconv.Itoa(m.room)); err != nil {
		return err
	}
	ready := "joined"
	if m.crowd.contender == "centrifuge" {
		ready = `"subscribe":`
		if err := m.conn.say([]byte(`{"id":1,"connect":{}}`)); err != nil {
			return err
		}
		if err := m.conn.say(fmt.Appendf(nil, `{"id":2,"subscribe":{"channel":"r%d"}}`, m.room)); err != nil {
			return err
		}
	}
	for {
		p, err := m.conn.read()
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

// read takes what comes: a frame may have several messages.
func (m *member) read() {
	stamp := []byte(`"t":"`)
	for {
		p, err := m.conn.read()
		if err != nil {
			m.crowd.fail(err)
			return
		}
		now := time.Now().UnixNano()
		for {
			_, after, found := bytes.Cut(p, stamp)
			if !found {
				break
			}
			p = after
			text, _, _ := strings.Cut(string(p[:min(len(p), 60)]), `"`)
			m.take(text, now)
		}
	}
}

// take takes a message: its room, side, number and time.
func (m *member) take(text string, now int64) {
	var room, side, number int
	var at int64
	if _, err := fmt.Sscanf(text, "%d:%d:%d:%d", &room, &side, &number, &at); err != nil {
		m.crowd.fail(err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if room != m.room || number != m.next {
		m.crowd.fail(fmt.Errorf("in room %d came number %d of room %d, want number %d", m.room, number, room, m.next))
	}
	m.next = number + 1
	if side == m.side {
		m.local = append(m.local, time.Duration(now-at))
	} else {
		m.across = append(m.across, time.Duration(now-at))
	}
	m.crowd.delivered.Add(1)
}

func (c *crowd) fail(err error) { c.failed.CompareAndSwap(nil, &err) }

// talk has one member of each room in turn say something, and waits until all was delivered, or
// nothing more comes. Half of those who speak are on each process.
func (c *crowd) talk(length time.Duration) (said int) {
	before, pad := c.delivered.Load(), strings.Repeat("x", 64)
	period := time.Second / time.Duration(c.rate)
	for due, end := time.Now(), time.Now().Add(length); due.Before(end); due = due.Add(period) {
		time.Sleep(time.Until(due))
		room := c.said % c.rooms
		m := c.members[room+c.rooms*(room%2)]
		data := fmt.Sprintf(`{"t":"%d:%d:%d:%d","p":"%s"}`, room, m.side, c.said/c.rooms, time.Now().UnixNano(), pad)
		c.said++
		said++
		if c.contender == "centrifuge" {
			data = fmt.Sprintf(`{"id":%d,"publish":{"channel":"r%d","data":%s}}`, c.said+10, room, data)
		}
		if err := m.conn.say([]byte(data)); err != nil {
			c.fail(err)
		}
	}
	want := before + int64(said*(c.conns/c.rooms))
	for end := time.Now().Add(20 * time.Second); c.delivered.Load() < want && time.Now().Before(end); {
		time.Sleep(10 * time.Millisecond)
	}
	time.Sleep(100 * time.Millisecond) // for what must not come
	if n := c.delivered.Load(); n != want {
		c.fail(fmt.Errorf("%d deliveries, want %d", n-before, want-before))
	}
	return said
}

// results returns how long deliveries took since the last call, or what went wrong.
func (c *crowd) results() (across, local []time.Duration, err error) {
	for _, m := range c.members {
		m.mu.Lock()
		across, local = append(across, m.across...), append(local, m.local...)
		m.across, m.local = nil, nil
		m.mu.Unlock()
	}
	if err := c.failed.Load(); err != nil {
		return nil, nil, *err
	}
	return across, local, nil
}

func (c *crowd) close() {
	for _, m := range c.members {
		if m.conn != nil {
			m.conn.close()
		}
	}
}
