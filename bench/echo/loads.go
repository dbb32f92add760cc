package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// pace sends a message at fixed times, rate of them a second over all connections, and takes the
// latency from the time at which it was to be sent. So a server that stands still for a moment is
// late for each message of that moment, also for those that wait here.
func (d *dialogue) pace(offset time.Duration) error {
	period := time.Duration(len(d.conns)) * time.Second / time.Duration(d.rate)
	frame := make([]byte, header+d.size)
	binary.BigEndian.PutUint32(frame, uint32(d.size))
	answer := make([]byte, len(frame))
	for due := time.Now().Add(offset); d.phase.Load() != over; due = due.Add(period) {
		time.Sleep(time.Until(due))
		if err := d.exchange(d.conn, frame, answer, due); err != nil {
			return err
		}
	}
	return nil
}

// exchange sends a numbered message, waits for its answer and counts it.
func (d *dialogue) exchange(c net.Conn, frame, answer []byte, due time.Time) error {
	binary.BigEndian.PutUint64(frame[header:], d.sent)
	d.sent++
	if _, err := c.Write(frame); err != nil {
		return err
	}
	if _, err := io.ReadFull(c, answer); err != nil {
		return err
	}
	if string(answer) != string(frame) {
		return fmt.Errorf("message %d of %d bytes came back as another", d.answered, d.size)
	}
	d.answered++
	if d.phase.Load() == measuring {
		d.messages++
		d.latency.add(time.Since(due))
	}
	return nil
}

// reconnect makes a connection for each message, and ends it in order. Its latency is that of all.
func (d *dialogue) reconnect() error {
	frame := make([]byte, header+d.size)
	binary.BigEndian.PutUint32(frame, uint32(d.size))
	answer := make([]byte, len(frame))
	dialer := net.Dialer{Timeout: patience, KeepAlive: -1}
	for d.phase.Load() != over {
		begun := time.Now()
		c, err := dialer.Dial("tcp", d.addr)
		if err != nil {
			return err
		}
		_ = c.SetDeadline(begun.Add(patience))
		err = d.exchange(c, frame, answer, begun)
		if err == nil {
			_ = c.(*net.TCPConn).CloseWrite()
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
