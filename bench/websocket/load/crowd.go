//go:build linux

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/loopwheel/loopwheel/bench/internal/wsclient"
)

// A crowd is all the clients.
type crowd struct {
	addr    string
	members []*member
	rooms   int
	ready   sync.WaitGroup

	delivered atomic.Int64
	faults    atomic.Int64
	first     atomic.Pointer[string] // the first fault
	talking   atomic.Bool
	said      int // by each speaker
}

// A member is one client: a goroutine that reads.
type member struct {
	crowd *crowd
	room  int
	conn  *wsclient.Conn
	next  int // the number of the message that must come
	late  []time.Duration
}

func newCrowd(addr string, conns, rooms int) *crowd {
	c := &crowd{addr: addr, rooms: rooms}
	for i := range conns {
		c.members = append(c.members, &member{crowd: c, room: i % rooms})
	}
	return c
}

// connect opens all connections, some at a time, and waits until each is in its room.
func (c *crowd) connect() error {
	const atOnce = 64
	var wg sync.WaitGroup
	slots := make(chan struct{}, atOnce)
	errs := make(chan error, len(c.members))
	c.ready.Add(len(c.members))
	for i, m := range c.members {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			if err := m.open(i); err != nil {
				errs <- err
			}
		})
	}
	wg.Wait()
	select {
	case err := <-errs:
		return err
	default:
	}
	c.ready.Wait()
	return nil
}

func (m *member) open(i int) (err error) {
	m.conn, err = wsclient.Dial(fmt.Sprintf("ws://%s/ws?nick=user%d&room=room%d", m.crowd.addr, i, m.room))
	if err == nil {
		go m.read()
	}
	return err
}

// read checks all that comes: the text of each message is its number and when it was said.
func (m *member) read() {
	joined := false
	for {
		payload, err := m.conn.Read()
		if err != nil {
			if m.crowd.talking.Load() {
				m.fault("the connection ended: %v", err)
			}
			return
		}
		if !joined && bytes.Contains(payload, []byte(`"t":"who"`)) {
			joined = true
			m.crowd.ready.Done()
		}
		if bytes.Contains(payload, []byte(`"t":"say"`)) {
			m.said(payload)
		}
	}
}

func (m *member) said(payload []byte) {
	var e struct{ Room, Text string }
	var number int
	var at int64
	if err := json.Unmarshal(payload, &e); err != nil {
		m.fault("%v", err)
	}
	if _, err := fmt.Sscan(e.Text, &number, &at); err != nil || number != m.next || e.Room != fmt.Sprintf("room%d", m.room) {
		m.fault("in room %d came %q of room %s, want number %d", m.room, e.Text, e.Room, m.next)
	}
	m.next = number + 1
	m.late = append(m.late, time.Duration(time.Now().UnixNano()-at))
	m.crowd.delivered.Add(1)
}

func (m *member) fault(format string, args ...any) {
	s := fmt.Sprintf(format, args...)
	m.crowd.first.CompareAndSwap(nil, &s)
	m.crowd.faults.Add(1)
}

// talk has the first member of each room say something each second, the rooms spread over the
// second.
func (c *crowd) talk(during time.Duration) {
	c.talking.Store(true)
	defer c.talking.Store(false)
	tick := time.NewTicker(time.Second / time.Duration(c.rooms))
	defer tick.Stop()
	for end := time.Now().Add(during); time.Now().Before(end); {
		for _, m := range c.members[:c.rooms] {
			<-tick.C
			if err := m.conn.Say(fmt.Appendf(nil, "%d %d", c.said, time.Now().UnixNano())); err != nil {
				m.fault("cannot say: %v", err)
			}
		}
		c.said++
	}
	want := int64(c.said * len(c.members))
	for end := time.Now().Add(time.Minute); c.delivered.Load() < want && time.Now().Before(end); {
		time.Sleep(10 * time.Millisecond)
	}
	time.Sleep(time.Second) // for what must not come
}

// end returns how long deliveries took, or what went wrong.
func (c *crowd) end() (late []time.Duration, err error) {
	for _, m := range c.members {
		m.conn.Close()
		late = append(late, m.late...)
	}
	if n := c.faults.Load(); n > 0 {
		return nil, fmt.Errorf("%d faults, the first: %s", n, *c.first.Load())
	}
	if want := c.said * len(c.members); len(late) != want || want == 0 {
		return nil, fmt.Errorf("%d messages were delivered, want %d", len(late), want)
	}
	return late, nil
}
