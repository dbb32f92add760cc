package main

import (
	"encoding/binary"
	"io"
	"net"
	"sync"
	"time"
)

// messageSize is that of a message and its length.
const messageSize = 68

// drive starts clients that together send rate messages per second, each at its time whether or not
// the server keeps up, and returns where they write how long the answers took.
func drive(wg *sync.WaitGroup, errs chan<- error, addr, kind string, conns, rate int, length time.Duration) []reply {
	perConn := int(float64(rate)*length.Seconds()) / conns
	answers := make([]reply, perConn*conns)
	interval := time.Second * time.Duration(conns) / time.Duration(rate)
	for i := range conns {
		mine := answers[i*perConn : (i+1)*perConn]
		wg.Go(func() {
			if err := client(addr, kind, mine, interval, interval*time.Duration(i)/time.Duration(conns)); err != nil {
				select {
				case errs <- err:
				default:
				}
			}
		})
	}
	return answers
}

func client(addr, kind string, answers []reply, interval, offset time.Duration) error {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return err
	}
	defer c.Close()
	msg := make([]byte, messageSize)
	binary.BigEndian.PutUint32(msg, messageSize-4)
	copy(msg[4:], kind)
	in := make([]byte, len(msg))
	next := time.Now().Add(offset)
	for i := range answers {
		next = next.Add(interval)
		time.Sleep(time.Until(next))
		sent := time.Now()
		if _, err := c.Write(msg); err != nil {
			return err
		}
		if _, err := io.ReadFull(c, in); err != nil {
			return err
		}
		answers[i] = reply{sent.UnixNano(), time.Since(sent)}
	}
	return nil
}
