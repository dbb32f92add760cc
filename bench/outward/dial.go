package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"

	"github.com/loopwheel/loopwheel/loop"
)

// tcpSink accepts and closes when the other side does.
func tcpSink() {
	ln := listen()
	fmt.Println(ln.Addr())
	go func() {
		for {
			c := must(ln.Accept())
			go func() {
				_, _ = io.Copy(io.Discard, c)
				_ = c.Close()
			}()
		}
	}()
	untilInputEnds()
}

// dials is how many in a round, underWay how many of them at once.
const dials, underWay = 8000, 16

// The dialling processes wait for a line, dial and close so many times, and write one.
func dialLoopwheel()     { dialLoops("127.0.0.1") }
func dialLoopwheelName() { dialLoops("localhost") }

func dialLoops(host string) {
	srv := &loop.Server{NumLoops: 1}
	check(srv.Start(context.Background()))
	rounds(func(port string) {
		done := make(chan struct{})
		l := srv.Loops()[0]
		left := dials - underWay + 1
		var next func()
		next = func() {
			loop.Dialer{}.Dial(l, "tcp://"+host+":"+port, func(c *loop.Conn, err error) loop.Handler {
				check(err)
				c.AfterClose(func(error) {
					switch left--; {
					case left > 0:
						next()
					case left == 1-underWay:
						close(done)
					}
				})
				c.CloseWithError(loop.ErrIdle) // does not linger, as net.Conn does not
				return quiet{}
			})
		}
		_ = l.Post(func() {
			for range underWay {
				next()
			}
		})
		<-done
	})
}

type quiet struct{}

func (quiet) OnMessage(*loop.Conn, []byte) error { return nil }
func (quiet) OnClose(*loop.Conn, error)          {}

func dialNet()     { dialNets("127.0.0.1") }
func dialNetName() { dialNets("localhost") }

func dialNets(host string) {
	rounds(func(port string) {
		var wg sync.WaitGroup
		for range underWay {
			wg.Go(func() {
				for range dials / underWay {
					c := must(net.Dial("tcp", net.JoinHostPort(host, port)))
					_ = c.Close()
				}
			})
		}
		wg.Wait()
	})
}

// rounds runs one for each line of the input, which is a port.
func rounds(one func(port string)) {
	fmt.Println("ready")
	for sc := bufio.NewScanner(os.Stdin); sc.Scan(); {
		one(strings.TrimSpace(sc.Text()))
		fmt.Println("done")
	}
}

// benchDial has a listener of its own for each turn: the kernel looks for a port longer and longer
// if there were tens of thousands of connections to one address within a minute.
func benchDial() {
	for _, kind := range []string{"", "-name"} {
		compare("dial and close"+kind, []string{"dial-net" + kind, "dial-loopwheel" + kind}, func(name string) float64 {
			sink, p := start("tcp-sink"), start(name)
			defer sink.stop()
			defer p.stop()
			_, port, _ := net.SplitHostPort(sink.addr)
			begun := p.cpu()
			fmt.Fprintln(p.in.(io.Writer), port)
			_ = must(p.out.Read(make([]byte, 10)))
			return float64((p.cpu() - begun).Nanoseconds()) / 1e3 / dials
		})
	}
}
