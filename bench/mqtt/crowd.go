//go:build linux

package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"time"

	"github.com/loopwheel/loopwheel/codec/mqtt"
)

// crowd is the clients of one broker.
type crowd struct {
	addr  string
	conns []*client
	got   atomic.Int64 // messages that have arrived
}

type client struct {
	nc   net.Conn
	r    *bufio.Reader
	buf  []byte
	acks chan struct{} // one for each PUBACK
}

var payload = make([]byte, 64)

// join connects a client that subscribes.
func (c *crowd) join(qos byte, filters ...string) error {
	nc, err := net.Dial("tcp", c.addr)
	if err != nil {
		return err
	}
	cl := &client{nc: nc, r: bufio.NewReaderSize(nc, 2048), acks: make(chan struct{}, 2000)}
	hello := mqtt.Connect{Version: mqtt.V311, CleanStart: true, ClientID: fmt.Append(nil, "c", len(c.conns))}
	out, err := hello.Append(nil)
	if err != nil {
		return err
	}
	var subs []mqtt.Subscription
	for _, f := range filters {
		subs = append(subs, mqtt.Subscription{Filter: []byte(f), QoS: qos})
	}
	if out, err = mqtt.AppendSubscribe(out, mqtt.V311, 1, nil, subs...); err != nil {
		return err
	}
	if _, err := nc.Write(out); err != nil {
		return err
	}
	for _, want := range []mqtt.Type{mqtt.CONNACK, mqtt.SUBACK} {
		if frame, err := cl.next(); err != nil || mqtt.TypeOf(frame) != want {
			return fmt.Errorf("got % x, %w; want %v", frame, err, want)
		}
	}
	c.conns = append(c.conns, cl)
	go c.receive(cl)
	return nil
}

// next returns a packet, which is valid until the next call.
func (cl *client) next() ([]byte, error) {
	head, err := cl.r.Peek(2)
	if err != nil {
		return nil, err
	}
	size := 2 + int(head[1])
	if head[1] >= 128 {
		return nil, errors.New("a packet of more than 127 bytes")
	}
	if cap(cl.buf) < size {
		cl.buf = make([]byte, 256)
	}
	_, err = io.ReadFull(cl.r, cl.buf[:size])
	return cl.buf[:size], err
}

// receive counts messages, and acknowledges those of QoS 1, until the connection ends.
func (c *crowd) receive(cl *client) {
	var out []byte
	for {
		frame, err := cl.next()
		if err != nil {
			return
		}
		arrived := int64(0)
		if mqtt.TypeOf(frame) == mqtt.PUBACK {
			cl.acks <- struct{}{}
		} else {
			m, err := mqtt.ParsePublish(frame, mqtt.V311)
			if err != nil {
				return
			}
			if m.QoS > 0 {
				out, _ = (&mqtt.Ack{Type: mqtt.PUBACK, ID: m.ID}).Append(out, mqtt.V311)
			}
			arrived = 1
		}
		if cl.r.Buffered() < 2 && len(out) > 0 {
			_, _ = cl.nc.Write(out) // a failure shows as messages that are missing
			out = out[:0]
		}
		c.got.Add(arrived)
	}
}

// wait waits until so many messages have arrived.
func (c *crowd) wait(want int64) error {
	for end := time.Now().Add(20 * time.Second); c.got.Load() < want; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			return fmt.Errorf("%d messages are missing", want-c.got.Load())
		}
	}
	return nil
}

// steady publishes at a rate, from one device after the other, and returns how many deliveries that
// makes.
func (c *crowd) steady(rate int, length time.Duration) (deliveries int64, err error) {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for n, began := 0, time.Now(); time.Since(began) < length; <-tick.C {
		for due := int(time.Since(began).Seconds() * float64(rate)); n < due; n++ {
			i := n % len(c.conns)
			if err := c.publish(i, fmt.Sprint("d/", i)); err != nil {
				return 0, err
			}
			deliveries += 2
		}
	}
	return deliveries, nil
}

func (c *crowd) publish(i int, topic string) error {
	out, err := (&mqtt.Publish{Topic: []byte(topic), Payload: payload}).Append(nil, mqtt.V311)
	if err == nil {
		_, err = c.conns[i].nc.Write(out)
	}
	return err
}

// all publishes messages that all devices get, each after the one before has arrived.
func (c *crowd) all(messages int) (deliveries int64, err error) {
	before := c.got.Load()
	for range messages {
		if err := c.publish(0, "all"); err != nil {
			return 0, err
		}
		deliveries += int64(len(c.conns))
		if err := c.wait(before + deliveries); err != nil {
			return 0, err
		}
	}
	return deliveries, nil
}

// bursts has the last client, which subscribes to the topic, publish 1,000 messages at a time in
// pieces of 100, each after the one before has arrived.
func (c *crowd) bursts(n int, topic string, qos byte) (messages int64, err error) {
	cl, before := c.conns[len(c.conns)-1], c.got.Load()
	for range n * 10 {
		var out []byte
		for i := range 100 {
			m := mqtt.Publish{QoS: qos, Topic: []byte(topic), Payload: payload}
			if qos > 0 {
				m.ID = uint16(i + 1)
			}
			if out, err = m.Append(out, mqtt.V311); err != nil {
				return 0, err
			}
		}
		if _, err := cl.nc.Write(out); err != nil {
			return 0, err
		}
		for i := 0; qos > 0 && i < 100; i++ {
			select {
			case <-cl.acks:
			case <-time.After(20 * time.Second):
				return 0, errors.New("no PUBACK")
			}
		}
		messages += 100
		if err := c.wait(before + messages); err != nil {
			return 0, err
		}
	}
	return messages, nil
}

func (c *crowd) close() {
	for _, cl := range c.conns {
		_ = cl.nc.Close()
	}
}
