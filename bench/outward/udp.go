package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/panjf2000/gnet/v2"
	"golang.org/x/net/ipv4"

	"github.com/loopwheel/loopwheel/bench/internal/place"
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

// udpBatches is what Go's net offers beside single datagrams.
func udpBatches() {
	c := must(net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)}))
	fmt.Println(c.LocalAddr())
	go func() {
		pc := ipv4.NewPacketConn(c)
		batch := make([]ipv4.Message, 64)
		for i := range batch {
			batch[i].Buffers = [][]byte{make([]byte, 1<<16)}
		}
		for {
			n := must(pc.ReadBatch(batch, 0))
			for i := range batch[:n] {
				batch[i].Buffers[0] = batch[i].Buffers[0][:batch[i].N]
			}
			for rest := batch[:n]; len(rest) > 0; {
				sent, err := pc.WriteBatch(rest, 0)
				check(err)
				rest = rest[sent:]
			}
			for i := range batch[:n] {
				batch[i].Buffers[0] = batch[i].Buffers[0][:1<<16]
			}
		}
	}()
	untilInputEnds()
}

type gnetEcho struct {
	gnet.BuiltinEventEngine
	addr string
}

func (e *gnetEcho) OnBoot(gnet.Engine) gnet.Action {
	fmt.Println(e.addr)
	return gnet.None
}

func (*gnetEcho) OnTraffic(c gnet.Conn) gnet.Action {
	msg, _ := c.Next(-1)
	_, _ = c.Write(msg)
	return gnet.None
}

// silent is gnet's logger, which writes to the standard output otherwise.
type silent struct{}

func (silent) Debugf(string, ...any) {}
func (silent) Infof(string, ...any)  {}
func (silent) Warnf(string, ...any)  {}
func (silent) Errorf(string, ...any) {}
func (silent) Fatalf(string, ...any) {}

func udpGnet() {
	c := must(net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)}))
	addr := c.LocalAddr().String()
	_ = c.Close()
	go func() {
		check(gnet.Run(&gnetEcho{addr: addr}, "udp://"+addr, gnet.WithNumEventLoop(1), gnet.WithLogger(silent{})))
	}()
	untilInputEnds()
}

// benchUDP is an echo of 64 bytes for 32 peers.
func benchUDP() {
	for _, depth := range []int{1, 16} {
		for _, peers := range []int{32, 1} {
			title := fmt.Sprintf("UDP echo, %d peers, depth %d", peers, depth)
			if !strings.Contains(" "+title+" ", *cell) {
				continue
			}
			compare(title, []string{"udp-net", "udp-batches", "udp-gnet", "udp-loopwheel"}, func(name string) float64 {
				return udpRound(name, peers, depth)
			})
		}
	}
}

// udpRound returns the server's CPU time per datagram, in microseconds.
func udpRound(name string, peers, depth int) float64 {
	p := start(name)
	defer p.stop()
	defer p.beside(os.Getpid())()
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

// beside has the process and another run where -place says. free has the other run where it may.
func (p *process) beside(other int) (free func()) {
	undo, err := place.Bind(*where, p.cmd.Process.Pid, other)
	check(err)
	return func() { check(undo()) }
}
