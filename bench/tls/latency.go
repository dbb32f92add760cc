package main

import (
	"net"
	"slices"
	"sync"
	"time"
)

// pause is how long a connection rests between two echoes.
const pause = 20 * time.Millisecond

// latency returns the 99th percentile of how long an echo takes on 100 connections, while others
// have begun handshakes and do not go on.
func (o *options) latency(s *server, begun int) (float64, error) {
	conns, err := s.open(100)
	if err != nil {
		return 0, err
	}
	defer closeAll(conns)
	for range begun {
		c, err := net.Dial("tcp", s.addr)
		if err != nil {
			return 0, err
		}
		defer c.Close()
		if _, err := c.Write([]byte("\x16\x03\x01\x02\x00\x01\x00\x01\xfc")); err != nil {
			return 0, err
		}
	}
	var mu sync.Mutex
	var all []float64
	var failed error
	var wg sync.WaitGroup
	end := time.Now().Add(o.window)
	for i, c := range conns {
		wg.Go(func() {
			frame := make([]byte, 4+64)
			time.Sleep(pause * time.Duration(i) / time.Duration(len(conns))) // so that they do not come together
			for time.Now().Before(end) {
				began := time.Now()
				err := echoOnce(c, frame)
				took := time.Since(began)
				mu.Lock()
				all = append(all, float64(took)/1e3)
				if err != nil {
					failed = err
				}
				mu.Unlock()
				if err != nil {
					return
				}
				time.Sleep(pause)
			}
		})
	}
	wg.Wait()
	slices.Sort(all)
	return all[len(all)*99/100], failed
}
