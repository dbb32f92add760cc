package main

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/loopwheel/loopwheel/loop"
)

func udpLoopwheel() {
	srv := &loop.Server{Addr: "udp://127.0.0.1:0", NumLoops: 1, Accept: func(*loop.Conn) loop.Handler {
		return loop.HandlerFunc(func(c *loop.Conn, msg []byte) error { return c.Send(msg) })
	}}
	check(srv.Start(context.Background()))
	fmt.Println(srv.LocalAddr())
	untilInputEnds()
}

func udpNet() {
	c := must(net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)}))
	fmt.Println(c.LocalAddr())
	go func() {
		buf := make([]byte, 1<<16)
		for {
			n, peer, err := c.ReadFromUDPAddrPort(buf)
			check(err)
			_, _ = c.WriteToUDPAddrPort(buf[:n], peer)
		}
	}()
	untilInputEnds()
}

// benchUDP is an echo of 64 bytes for 32 peers.
func benchUDP() {
	for _, depth := range []int{1, 16} {
		for _, peers := range []int{32, 1} {
			compare(fmt.Sprintf("UDP echo, %d peers, depth %d", peers, depth), []string{"udp-net", "udp-loopwheel"}, func(name string) float64 {
				return udpRound(name, peers, depth)
			})
		}
	}
}

// udpRound returns the server's CPU time per datagram, in microseconds.
func udpRound(name string, peers, depth int) float64 {
	p := start(name)
	defer p.stop()
	var wg sync.WaitGroup
	begun := p.cpu()
	end := time.Now().Add(700 * time.Millisecond)
	counts := make([]int, peers)
	for i := range peers {
		wg.Go(func() {
			c := must(net.Dial("udp", p.addr))
			defer c.Close()
			msg, buf := make([]byte, 64), make([]byte, 100)
			for time.Now().Before(end) {
				for range depth {
					_, _ = c.Write(msg)
				}
				c.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
				for range depth {
					if _, err := c.Read(buf); err != nil {
						break
					}
					counts[i]++
				}
			}
		})
	}
	wg.Wait()
	total := 0
	for _, n := range counts {
		total += n
	}
	return float64((p.cpu() - begun).Nanoseconds()) / 1e3 / float64(total)
}
