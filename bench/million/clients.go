//go:build linux

package main

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/loopwheel/loopwheel/bench/internal/measure"
)

// Messages have a length of 4 bytes in front. A ping and its answer have one byte. A talker's
// message has the time at which it was to be sent, and comes back as it is.
const (
	header     = 4
	pingSize   = 1
	talkSize   = 60
	portsEach  = 10_000 // of one address: a search among most of its 28,000 takes long
	talkPeriod = time.Second / talkers
	distance   = 50 * time.Millisecond
)

var pingFrame = []byte{0, 0, 0, pingSize, 'p'}

// clients are connections of one process, served by one loop on epoll: they cost little beside the
// server that is measured.
type clients struct {
	ep      int
	fds     []int32
	quiet   map[int32]bool // answer no ping during silence
	silence atomic.Bool
	talking atomic.Bool
	waits   chan time.Duration
	talkFor time.Duration
}

// runClients opens n connections, and then does what its input says.
func runClients(addr string, first, n int, talk time.Duration) error {
	to, err := netip.ParseAddrPort(addr)
	if err != nil {
		return err
	}
	c := &clients{quiet: make(map[int32]bool), waits: make(chan time.Duration, 1<<16), talkFor: talk}
	if c.ep, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return err
	}
	for i := range n {
		if err := c.open(to, first+i); err != nil {
			return fmt.Errorf("connection %d: %w", first+i, err)
		}
		if i%10_000 == 9_999 {
			fmt.Println(i+1, "of", n)
		}
	}
	for _, fd := range c.fds[len(c.fds)-silent*n/max(n, 2*silent):] {
		c.quiet[fd] = true
	}
	go c.serve()
	fmt.Println("open")
	measure.Obey(func(line string) string {
		switch line {
		case "talk":
			return c.talk()
		case "silence":
			c.silence.Store(true)
		}
		return ""
	})
	return nil
}

func (c *clients) open(to netip.AddrPort, number int) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	address := 2 + number/portsEach // 127.0.0.2 and up
	from := &unix.SockaddrInet4{Addr: [4]byte{127, 0, byte(address >> 8), byte(address)}}
	_ = unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_BIND_ADDRESS_NO_PORT, 1)
	_ = unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}) // no TIME_WAIT
	if err := unix.Bind(fd, from); err != nil {
		return err
	}
	for {
		err := unix.Connect(fd, &unix.SockaddrInet4{Addr: to.Addr().As4(), Port: int(to.Port())})
		if err == nil {
			break
		}
		if err != unix.EINTR {
			return err
		}
	}
	c.fds = append(c.fds, int32(fd))
	return unix.EpollCtl(c.ep, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)})
}

// serve answers pings, and takes the time of what comes back to talkers. While nobody talks it
// looks at the sockets only once in a while, so that the clients leave the cores to the server.
func (c *clients) serve() {
	events := make([]unix.EpollEvent, 1024)
	buf := make([]byte, 4096)
	for {
		if !c.talking.Load() {
			time.Sleep(distance)
		}
		n, _ := unix.EpollWait(c.ep, events, -1)
		for _, ev := range events[:max(0, n)] {
			got, err := unix.Read(int(ev.Fd), buf)
			if got <= 0 {
				if err != unix.EINTR {
					_ = unix.Close(int(ev.Fd))
				}
				continue
			}
			c.received(ev.Fd, buf[:got])
		}
	}
}

func (c *clients) received(fd int32, in []byte) {
	for len(in) >= header {
		size := int(binary.BigEndian.Uint32(in))
		if len(in) < header+size {
			return // small frames come whole
		}
		switch size {
		case pingSize:
			if !c.silence.Load() || !c.quiet[fd] {
				_, _ = unix.Write(int(fd), pingFrame)
			}
		case talkSize:
			sent := time.Duration(binary.BigEndian.Uint64(in[header:]))
			c.waits <- time.Since(epoch) - sent
		}
		in = in[header+size:]
	}
}

var epoch = time.Now()

// talk has the first connections say something each second, at times that are spread, and returns
// the 99th percentile of the times to an answer, from when each was to be sent.
func (c *clients) talk() string {
	c.talking.Store(true)
	defer c.talking.Store(false)
	frame := make([]byte, header+talkSize)
	binary.BigEndian.PutUint32(frame, talkSize)
	begun := time.Since(epoch)
	var waits []time.Duration
	for i := range int(c.talkFor / talkPeriod) {
		due := begun + time.Duration(i)*talkPeriod
		time.Sleep(due - time.Since(epoch))
		binary.BigEndian.PutUint64(frame[header:], uint64(due))
		_, _ = unix.Write(int(c.fds[i%talkers]), frame)
		for len(c.waits) > 0 {
			waits = append(waits, <-c.waits)
		}
	}
	time.Sleep(time.Second)
	for len(c.waits) > 0 {
		waits = append(waits, <-c.waits)
	}
	return fmt.Sprint(int64(measure.Quantile(waits, 0.99)))
}
