package loop_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/looptest"
)

// netPipe returns two net.Conns in memory. Their peers pass on to each other what they get, in each
// millisecond of virtual time, if all before that has been read.
func netPipe(t *testing.T) (c1, c2 net.Conn) {
	conns := make(chan net.Conn, 1)
	srv := looptest.Start(t, &loop.Server{Accept: netConnTo(t, conns)})
	var peers [2]*looptest.Peer
	var ncs [2]net.Conn
	for i := range peers {
		peers[i], ncs[i] = srv.Open(), <-conns
		peers[i].Block(64 << 10)
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	t.Cleanup(func() {
		close(stop)
		<-stopped
		for _, p := range peers {
			p.Unblock()
		}
	})
	go func() {
		defer close(stopped)
		tick, fed := time.NewTicker(time.Millisecond), uint64(0)
		defer tick.Stop()
		var over [2]bool
		for {
			for i, from := range peers {
				if srv.Stats().BytesIn < fed {
					break
				}
				to, got := peers[1-i], from.Received()
				if got == "" && from.Closed() && !over[i] {
					over[i] = true
					to.CloseWrite()
				}
				if fed += uint64(len(got)); got != "" {
					from.Take(len(got))
					from.Block(64 << 10)
					to.Send(got)
				}
			}
			select {
			case <-tick.C:
			case <-stop:
				return
			}
		}
	}()
	return ncs[0], ncs[1]
}

var longAgo = time.Unix(1, 0)

// wantTimeout fails unless err is that of a deadline.
func wantTimeout(t *testing.T, what string, err error) {
	t.Helper()
	if e, ok := err.(net.Error); !ok || !e.Timeout() || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%s: %v, want a timeout of package net", what, err)
	}
}

// fill writes until that fails.
func fill(c net.Conn) (n int, err error) {
	for k := 0; err == nil; n += k {
		k, err = c.Write(make([]byte, 1024))
	}
	return n, err
}

// roundtrip sends something to c, whose other end echoes, and skips what was on its way before.
func roundtrip(t *testing.T, c net.Conn) {
	t.Helper()
	testkit.WantErr(t, "SetDeadline", c.SetDeadline(time.Time{}), nil)
	mark := []byte{0xff, 'm', 'a', 'r', 'k'}
	go func() { _, _ = c.Write(mark) }()
	for last := []byte(nil); !bytes.HasSuffix(last, mark); {
		b := make([]byte, 1024)
		n, err := c.Read(b)
		if err != nil {
			t.Fatalf("Read: %v", err)
		}
		last = append(last, b[:n]...)
	}
}

// The cases of golang.org/x/net/nettest.TestConn, in virtual time, which is exact.
func TestNetConnInMemory(t *testing.T) {
	for name, test := range map[string]func(t *testing.T, c1, c2 net.Conn){
		"basic": func(t *testing.T, c1, c2 net.Conn) {
			random := rand.NewChaCha8([32]byte{})
			want := make([]byte, 1<<20)
			_, _ = random.Read(want)
			go func() {
				_, err := c1.Write(want)
				testkit.WantErr(t, "Write", err, nil)
				testkit.WantErr(t, "Close", c1.Close(), nil)
			}()
			got, err := io.ReadAll(c2)
			testkit.WantErr(t, "ReadAll", err, nil)
			testkit.Want(t, "the same bytes came", bytes.Equal(got, want), true)
		},
		"ping-pong": func(t *testing.T, c1, c2 net.Conn) {
			var wg sync.WaitGroup
			for _, c := range []net.Conn{c1, c2} {
				wg.Go(func() {
					defer c.Close()
					b := make([]byte, 8)
					for n := uint64(0); n < 1000; {
						if _, err := io.ReadFull(c, b); err != nil {
							testkit.WantErr(t, "Read", err, io.EOF)
							return
						}
						n = binary.BigEndian.Uint64(b) + 1
						_, err := c.Write(binary.BigEndian.AppendUint64(nil, n))
						testkit.WantErr(t, "Write", err, nil)
					}
				})
			}
			_, err := c1.Write(make([]byte, 8))
			testkit.WantErr(t, "Write", err, nil)
			wg.Wait()
		},
		"racy read": func(t *testing.T, c1, c2 net.Conn) {
			go func() { _, _ = fill(c2) }()
			racy(t, c1.Read, c1.SetReadDeadline)
		},
		"racy write": func(t *testing.T, c1, c2 net.Conn) {
			go func() { _, _ = io.Copy(io.Discard, c2) }()
			racy(t, c1.Write, c1.SetWriteDeadline)
		},
		"read timeout": func(t *testing.T, c1, c2 net.Conn) {
			go func() { _, _ = io.Copy(io.Discard, c2) }()
			_ = c1.SetReadDeadline(longAgo)
			_, err := c1.Read(make([]byte, 1024))
			wantTimeout(t, "Read", err)
			_, err = c1.Write(make([]byte, 1024))
			testkit.WantErr(t, "Write", err, nil)
		},
		"write timeout": func(t *testing.T, c1, c2 net.Conn) {
			go func() { _, _ = fill(c2) }()
			_ = c1.SetWriteDeadline(longAgo)
			_, err := c1.Write(make([]byte, 1024))
			wantTimeout(t, "Write", err)
			_, err = c1.Read(make([]byte, 1024))
			testkit.WantErr(t, "Read", err, nil)
		},
		"past timeout": func(t *testing.T, c1, c2 net.Conn) {
			go func() { _, _ = io.Copy(c2, c2) }()
			roundtrip(t, c1)
			_ = c1.SetDeadline(longAgo)
			n, err := c1.Write(make([]byte, 1024))
			testkit.Want(t, "written", n, 0)
			wantTimeout(t, "Write", err)
			n, err = c1.Read(make([]byte, 1024))
			testkit.Want(t, "read", n, 0)
			wantTimeout(t, "Read", err)
			roundtrip(t, c1)
		},
		"present timeout": func(t *testing.T, c1, c2 net.Conn) {
			begun := time.Now()
			both(t, c1, func(what string, err error) {
				wantTimeout(t, what, err)
				testkit.Want(t, what+" after", time.Since(begun), 100*time.Millisecond)
			}, func() { _ = c1.SetDeadline(longAgo) })
		},
		"future timeout": func(t *testing.T, c1, c2 net.Conn) {
			begun := time.Now()
			_ = c1.SetDeadline(begun.Add(time.Second))
			both(t, c1, func(what string, err error) {
				wantTimeout(t, what, err)
				testkit.Want(t, what+" after", time.Since(begun), time.Second)
			}, func() {})
			go func() { _, _ = io.Copy(c2, c2) }()
			roundtrip(t, c1)
		},
		"close": func(t *testing.T, c1, c2 net.Conn) {
			both(t, c1, func(what string, err error) { testkit.WantErr(t, what, err, net.ErrClosed) }, func() { _ = c1.Close() })
			testkit.WantErr(t, "Close again", c1.Close(), net.ErrClosed)
			testkit.WantErr(t, "SetDeadline", c1.SetDeadline(longAgo), net.ErrClosed)
		},
		"concurrent methods": func(t *testing.T, c1, c2 net.Conn) {
			go func() { _, _ = io.Copy(c2, c2) }()
			var wg sync.WaitGroup
			for range 100 {
				wg.Go(func() { _, _ = c1.Read(make([]byte, 1024)) })
				wg.Go(func() { _, _ = c1.Write(make([]byte, 1024)) })
				wg.Go(func() { _ = c1.SetDeadline(time.Now().Add(10 * time.Millisecond)) })
				wg.Go(func() { _ = c1.SetReadDeadline(longAgo) })
				wg.Go(func() { _ = c1.SetWriteDeadline(longAgo) })
				wg.Go(func() { _, _ = c1.LocalAddr(), c1.RemoteAddr() })
			}
			wg.Wait()
			roundtrip(t, c1)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c1, c2 := netPipe(t)
				defer c2.Close()
				defer c1.Close()
				test(t, c1, c2)
			})
		})
	}
}

// racy changes the buffer of an operation at once when that has returned.
func racy(t *testing.T, op func([]byte) (int, error), deadline func(time.Time) error) {
	_ = deadline(time.Now().Add(time.Millisecond))
	var wg sync.WaitGroup
	for range 10 {
		wg.Go(func() {
			b := make([]byte, 1024)
			for range 100 {
				_, err := op(b)
				clear(b)
				if err != nil {
					wantTimeout(t, "the operation", err)
					_ = deadline(time.Now().Add(time.Millisecond))
				}
			}
		})
	}
	wg.Wait()
}

// both reads and writes until that fails; after 100 ms it calls f.
func both(t *testing.T, c net.Conn, failed func(what string, err error), f func()) {
	var wg sync.WaitGroup
	wg.Go(func() {
		_, err := io.Copy(io.Discard, c)
		failed("Read", err)
	})
	wg.Go(func() {
		_, err := fill(c)
		failed("Write", err)
	})
	wait(100 * time.Millisecond)
	f()
	wg.Wait()
}

// What a handler has goes with NetConn, and what belongs to the stream stays.
func TestNetConnTakesOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log *journal
		conns, old := make(chan net.Conn, 1), make(chan *loop.Conn, 1)
		srv := looptest.Start(t, &loop.Server{
			Codec: codec.Lines{}, IdleTimeout: time.Second, Timeouts: loop.Timeouts{FirstByte: time.Second, Frame: time.Second}, Limits: loop.Limits{MaxConns: 1},
			Hooks: loop.Hooks{
				OnDrain:   func(*loop.Conn) { log.add("OnDrain") },
				OnClosing: func(*loop.Conn, error) { log.add("OnClosing") },
			},
			Accept: func(c *loop.Conn) loop.Handler {
				c.AfterFunc(time.Second, func() { log.add("timer") })
				c.OnIdle(loop.IdleRead, time.Second, func(int) { log.add("OnIdle") })
				_ = loop.Offload(c, func(context.Context) int { wait(time.Second); return 0 }, func(*loop.Conn, int) { log.add("job") })
				return script{
					Message: func(c *loop.Conn, _ []byte) error {
						_ = c.Send([]byte("before"))
						nc, err := c.NetConn()
						testkit.WantErr(t, "NetConn", err, nil)
						testkit.WantErr(t, "Send", c.Send([]byte("lost")), loop.ErrClosed)
						_, err = c.Write([]byte("lost"))
						testkit.WantErr(t, "Write", err, loop.ErrClosed)
						_, err = c.NetConn()
						testkit.WantErr(t, "NetConn again", err, loop.ErrClosed)
						conns <- nc
						old <- c
						return nil
					},
					Close: func(_ *loop.Conn, err error) {
						testkit.WantErr(t, "OnClose", err, loop.ErrDetached)
						log.add("OnClose")
					},
				}
			},
		})
		log = newJournal()
		p := srv.Open()
		p.Send("go on\nwhat came\nwith it")
		nc := <-conns
		log.expect(t, "OnClose")
		testkit.WantErr(t, "Tell", (<-old).Ref().Tell(func(*loop.Conn) {}), loop.ErrClosed)
		b := make([]byte, 100)
		n, err := nc.Read(b)
		testkit.WantErr(t, "Read", err, nil)
		testkit.Want(t, "read", string(b[:n]), "what came\nwith it")
		_, err = nc.Write([]byte("after"))
		testkit.WantErr(t, "Write", err, nil)
		wait(time.Hour)
		testkit.Want(t, "received", p.Received(), "before\nafter")
		testkit.Want(t, "its address", nc.RemoteAddr(), p.Addr())
		stats := srv.Stats()
		testkit.Want(t, "accepted", stats.Accepted, 1)
		testkit.Want(t, "open", stats.Conns, 1)
		srv.Do(0, func(l *loop.Loop) {
			for range l.Conns() {
				t.Error("Conns yields it")
			}
		})
		if p := srv.Open(); !p.Closed() {
			t.Error("MaxConns does not count it")
		}

		p.CloseWrite() // which leaves the other direction open
		n, err = nc.Read(b)
		testkit.WantErr(t, "Read at the end", err, io.EOF)
		testkit.Want(t, "read at the end", n, 0)
		_, err = nc.Write([]byte(" all"))
		testkit.WantErr(t, "Write after the peer's end", err, nil)
		testkit.WantErr(t, "CloseWrite", nc.(interface{ CloseWrite() error }).CloseWrite(), nil)
		_, err = nc.Write(b)
		if err == nil || errors.Is(err, net.ErrClosed) {
			t.Errorf("Write after CloseWrite: %v, want EPIPE", err)
		}
		wait(time.Second)
		testkit.Want(t, "received at the end", p.Received(), " all")
		_ = nc.Close()
		wait(time.Second)
		stats = srv.Stats()
		testkit.Want(t, "open at the end", stats.Conns, 0)
		testkit.Want(t, "closed by the handler", stats.ClosedBy["handler"], 1)
		log.expect(t, "OnClose")
	})
}

// The drain closes a net.Conn as any other connection: at once, or when it is not busy any more and
// all that was written is on its way. A reader finds it closed.
func TestNetConnInTheDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conns := make(chan net.Conn, 3)
		srv := looptest.Start(t, &loop.Server{Accept: netConnTo(t, conns), Drain: loop.Drain{Timeout: time.Minute}, Timeouts: loop.Timeouts{Close: time.Minute}})
		peers, all := make([]*looptest.Peer, 3), make([]net.Conn, 3)
		for i := range all {
			peers[i], all[i] = srv.Open(), <-conns
		}
		const idle, busy, slow = 0, 1, 2
		setBusy := all[busy].(codec.NetConn).SetBusy
		setBusy(true)
		peers[slow].Block(0)
		const size = 100 << 10
		_, err := all[slow].Write(make([]byte, size))
		testkit.WantErr(t, "Write", err, nil)
		srv.Shutdown()
		_, err = all[idle].Read(make([]byte, 1))
		testkit.WantErr(t, "Read of the idle one", err, net.ErrClosed)
		wait(time.Second)
		testkit.Want(t, "the busy one is closed", peers[busy].Closed(), false)
		_, _ = all[busy].Write([]byte("answer"))
		setBusy(false)
		peers[slow].Unblock()
		testkit.WantErr(t, "Wait", srv.Stop(), nil)
		testkit.Want(t, "the answer", peers[busy].Received(), "answer")
		testkit.Want(t, "received slowly", len(peers[slow].Received()), size)
	})
}

// A reader gets what came before a reset, and then the reset.
func TestNetConnIsReset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conns := make(chan net.Conn, 1)
		srv := looptest.Start(t, &loop.Server{Accept: netConnTo(t, conns)})
		p := srv.Open()
		p.Send("all")
		p.Reset()
		got, err := io.ReadAll(<-conns)
		testkit.Want(t, "read", string(got), "all")
		if e, ok := errors.AsType[*net.OpError](err); !ok || e.Op != "read" || e.Timeout() {
			t.Errorf("the error is %v, want that of a read", err)
		}
	})
}

// A connection may become a net.Conn and be given back any number of times: what its one socket
// reports reaches the present owner.
func TestNetConnGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conns := make(chan net.Conn, 1)
		srv := looptest.Start(t, &loop.Server{Codec: codec.Lines{}, Accept: func(*loop.Conn) loop.Handler {
			return loop.HandlerFunc(func(c *loop.Conn, msg []byte) error {
				if string(msg) != "take" {
					return c.Send(msg)
				}
				nc, err := c.NetConn()
				conns <- nc
				return err
			})
		}})
		p := srv.Open()
		for range 3 {
			p.Send("loop\ntake\n")
			nc, buf := <-conns, make([]byte, 3)
			p.Send("net")
			_, err := io.ReadFull(nc, buf)
			testkit.WantErr(t, "ReadFull", err, nil)
			testkit.Want(t, "what the goroutine reads", string(buf), "net")
			_, err = nc.Write([]byte("NET\n"))
			testkit.WantErr(t, "Write", err, nil)
			testkit.WantErr(t, "GiveBack", nc.(codec.NetConn).GiveBack([]byte("given back\n")), nil)
			synctest.Wait()
			testkit.Want(t, "what the peer reads", p.Received(), "loop\nNET\ngiven back\n")
			testkit.Want(t, "connections", srv.Stats().Conns, 1)
		}
		p.Close()
		synctest.Wait()
		testkit.Want(t, "connections after the end", srv.Stats().Conns, 0)
	})
}

// Input that was kept goes to the net.Conn once, also with a codec that unpacks frames.
func TestNetConnAfterUnpacking(t *testing.T) {
	const size = 100
	frame := string(binary.BigEndian.AppendUint32(nil, size)) + strings.Repeat("x", size-1) + "\n"
	for _, cd := range []codec.Codec{codec.Length{}, codec.Stack{Outer: codec.Length{}, Inner: codec.Lines{}}} {
		for _, paused := range []bool{false, true} {
			for _, frames := range []int{3, 300} {
				t.Run(fmt.Sprintf("%T paused=%v %d", cd, paused, frames), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						conns := make(chan net.Conn, 1)
						srv := looptest.Start(t, &loop.Server{Codec: cd, Accept: func(c *loop.Conn) loop.Handler {
							if paused {
								c.PauseRead()
								c.AfterFunc(time.Second, c.ResumeRead)
							}
							return loop.HandlerFunc(func(c *loop.Conn, _ []byte) error {
								nc, err := c.NetConn()
								testkit.WantErr(t, "NetConn", err, nil)
								conns <- nc
								return nil
							})
						}})
						p := srv.Open()
						p.Send(strings.Repeat(frame, frames))
						p.CloseWrite()
						nc := <-conns
						got, err := io.ReadAll(nc)
						testkit.WantErr(t, "ReadAll", err, nil)
						if want := strings.Repeat(frame, frames-1); string(got) != want {
							t.Errorf("read %d bytes, want the %d after the first message", len(got), len(want))
						}
						_ = nc.Close()
					})
				})
			}
		}
	}
}

// What was sent before NetConn, however much, and what was written last arrive before the end.
func TestNetConnWriteAndClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const large = 5 << 20 // above MaxOutbound
		srv := looptest.Start(t, &loop.Server{Accept: func(c *loop.Conn) loop.Handler {
			return loop.HandlerFunc(func(c *loop.Conn, m []byte) error {
				_ = c.Send(make([]byte, large))
				nc, err := c.NetConn()
				testkit.WantErr(t, "NetConn", err, nil)
				go func() {
					_, err := nc.Write([]byte("bye"))
					testkit.WantErr(t, "Write", err, nil)
					testkit.WantErr(t, "Close", nc.Close(), nil)
				}()
				return nil
			})
		}})
		p := srv.Open()
		p.Block(100 << 10)
		p.Send("x")
		srv.Sleep(time.Millisecond)
		p.Unblock()
		srv.Sleep(time.Second)
		got := p.Received()
		testkit.Want(t, "bytes", len(got), large+3)
		testkit.Want(t, "the end is", strings.HasSuffix(got, "bye"), true)
	})
}

// A connection that has ended its output takes no more as a net.Conn either.
func TestNetConnAfterCloseWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conns := make(chan net.Conn, 1)
		srv := looptest.Start(t, &loop.Server{Accept: with(func(c *loop.Conn) {
			c.CloseWrite()
			nc, err := c.NetConn()
			testkit.WantErr(t, "NetConn", err, nil)
			conns <- nc
		})})
		srv.Open()
		n, err := (<-conns).Write([]byte("lost"))
		if n != 0 || !errors.Is(err, syscall.EPIPE) {
			t.Errorf("Write returned %d, %v; want EPIPE", n, err)
		}
	})
}

// CloseWrite ends a Write that waits for room.
func TestNetConnCloseWriteEndsWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conns := make(chan net.Conn, 1)
		srv := looptest.Start(t, &loop.Server{Accept: netConnTo(t, conns)})
		p := srv.Open()
		p.Block(0)
		nc := <-conns
		ended := make(chan error, 1)
		go func() {
			_, err := nc.Write(make([]byte, 1<<20))
			ended <- err
		}()
		wait(time.Millisecond)
		testkit.WantErr(t, "CloseWrite", nc.(interface{ CloseWrite() error }).CloseWrite(), nil)
		wait(time.Millisecond)
		select {
		case err := <-ended:
			testkit.WantErr(t, "Write", err, syscall.EPIPE)
		default:
			t.Error("Write still waits after CloseWrite")
		}
		p.Reset()
		_ = nc.Close()
		wait(time.Second)
	})
}
