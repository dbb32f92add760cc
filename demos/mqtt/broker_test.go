package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/loopwheel/loopwheel/codec/mqtt"
	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop"
)

// start starts a broker on n loops and returns its address.
func start(t *testing.T, n int, cfg Config) (addr string, b *broker) {
	t.Helper()
	srv := &loop.Server{Addr: "tcp://127.0.0.1:0", NumLoops: n, Logger: zerolog.New(zerolog.NewTestWriter(t))}
	b = newBroker(cfg, srv)
	ctx, cancel := context.WithCancel(context.Background())
	if err := b.Start(ctx); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		var cut *loop.DrainError // of clients that have gone with output unread
		if err := srv.Wait(); err != nil && !errors.As(err, &cut) {
			t.Errorf("Wait: %v", err)
		}
	})
	return srv.LocalAddr().String(), b
}

// peer is a client that sends and receives packets one by one.
type peer struct {
	nc net.Conn
	r  *bufio.Reader
	v  mqtt.Version
}

// join connects a client and returns whether the broker had a session of it.
func join(addr string, c mqtt.Connect) (p *peer, present bool, err error) {
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, false, err
	}
	p = &peer{nc, bufio.NewReader(nc), c.Version}
	packet, err := c.Append(nil)
	if err != nil {
		return nil, false, err
	}
	if _, err = nc.Write(packet); err != nil {
		return nil, false, err
	}
	frame, err := p.next()
	if err != nil {
		return nil, false, err
	}
	ack, err := mqtt.ParseConnack(frame, c.Version)
	if err == nil && ack.Code != mqtt.Success {
		err = fmt.Errorf("CONNACK: %v", ack.Code)
	}
	return p, ack.SessionPresent, err
}

// next reads a packet.
func (p *peer) next() ([]byte, error) { return p.nextWithin(20 * time.Second) }

// nextWithin fails if no packet begins for a while. A closed connection says so at once.
func (p *peer) nextWithin(patience time.Duration) ([]byte, error) {
	_ = p.nc.SetReadDeadline(time.Now().Add(patience))
	if _, err := p.r.Peek(1); err != nil {
		return nil, err
	}
	_ = p.nc.SetReadDeadline(time.Now().Add(20 * time.Second))
	var frame []byte
	for {
		b, err := p.r.ReadByte()
		if err != nil {
			return nil, err
		}
		frame = append(frame, b)
		size, exact := (mqtt.Codec{Max: 1 << 20}).FrameSize(frame)
		if !exact {
			continue
		}
		head := len(frame)
		frame = append(frame, make([]byte, size-head)...)
		_, err = io.ReadFull(p.r, frame[head:])
		return frame, err
	}
}

func (p *peer) send(t *testing.T, packet []byte, err error) {
	t.Helper()
	if err == nil {
		_, err = p.nc.Write(packet)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// mustConnect is join of a client of version 5 whose session lasts.
func mustConnect(t *testing.T, addr, id string) *peer {
	t.Helper()
	p, _, err := join(addr, mqtt.Connect{Version: mqtt.V5, ClientID: []byte(id), Properties: mqtt.Properties(nil).AppendNumber(mqtt.SessionExpiry, 3600)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.nc.Close() })
	return p
}

// TestHostileClients: what a client must not do ends its connection with the reason of the standard.
func TestHostileClients(t *testing.T) {
	addr, _ := start(t, 2, Config{MaxPacket: 1000, MaxInflight: 2, MaxSubscriptions: 2, MaxQueueBytes: 1000})
	publish := func(p mqtt.Publish) []byte { b, _ := p.Append(nil, mqtt.V5); return b }
	alias := mqtt.Properties(nil).AppendNumber(mqtt.TopicAlias, 5)
	slow, _ := mqtt.AppendSubscribe(nil, mqtt.V5, 1, nil, mqtt.Subscription{Filter: []byte("slow"), QoS: 1})
	for range 5 { // two are under way and two wait
		slow = append(slow, publish(mqtt.Publish{QoS: 1, ID: 1, Topic: []byte("slow"), Payload: make([]byte, 500)})...)
	}
	for _, tt := range []struct {
		name string
		send []byte
		want mqtt.ReasonCode
	}{
		{"a packet of 268,435,455 bytes", []byte{0x30, 0xff, 0xff, 0xff, 0x7f}, mqtt.PacketTooLarge},
		{"no such type", []byte{0, 0}, mqtt.MalformedPacket},
		{"bad UTF-8", []byte{0x30, 4, 0, 1, 0xff, 0}, mqtt.MalformedPacket},
		{"a wildcard in a topic", []byte{0x30, 4, 0, 1, '#', 0}, mqtt.MalformedPacket},
		{"a second CONNECT", []byte{0x10, 13, 0, 4, 'M', 'Q', 'T', 'T', 5, 2, 0, 0, 0, 0, 0}, mqtt.ProtocolError},
		{"a server's packet", []byte{0x90, 4, 0, 1, 0, 0}, mqtt.ProtocolError},
		{"an unknown alias", publish(mqtt.Publish{Properties: alias}), mqtt.ProtocolError},
		{"QoS 2 above the receive maximum", bytes.Join([][]byte{publish(mqtt.Publish{QoS: 2, ID: 1, Topic: []byte("a")}), publish(mqtt.Publish{QoS: 2, ID: 2, Topic: []byte("a")}), publish(mqtt.Publish{QoS: 2, ID: 3, Topic: []byte("a")})}, nil), mqtt.ReceiveMaximumExceeded},
		{"too many bytes that wait for it", slow, mqtt.QuotaExceeded},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := mustConnect(t, addr, tt.name)
			p.send(t, tt.send, nil)
			for {
				frame, err := p.next()
				if err != nil {
					t.Fatalf("closed with %v and without DISCONNECT, want %v", err, tt.want)
				}
				if mqtt.TypeOf(frame) != mqtt.DISCONNECT {
					continue
				}
				if d, err := mqtt.ParseDisconnect(frame, mqtt.V5); d.Code != tt.want || err != nil {
					t.Errorf("DISCONNECT says %v, %v; want %v", d.Code, err, tt.want)
				}
				break
			}
			if _, err := p.next(); !errors.Is(err, io.EOF) {
				t.Errorf("after DISCONNECT: %v, want the end", err)
			}
		})
	}
	t.Run("subscriptions above the limit", func(t *testing.T) {
		p := mustConnect(t, addr, "greedy")
		packet, err := mqtt.AppendSubscribe(nil, mqtt.V5, 1, nil, mqtt.Subscription{Filter: []byte("a")}, mqtt.Subscription{Filter: []byte("b")}, mqtt.Subscription{Filter: []byte("c")})
		p.send(t, packet, err)
		frame, err := p.next()
		if err != nil {
			t.Fatal(err)
		}
		if ack, err := mqtt.ParseSubAck(frame, mqtt.V5); err != nil || ack.Codes[2] != byte(mqtt.QuotaExceeded) {
			t.Errorf("SUBACK has % x, %v; want the last to be %v", ack.Codes, err, mqtt.QuotaExceeded)
		}
	})
}

// TestSessionsMove: clients with lasting sessions come back on other loops, in place of connections
// that are still open, too, while others publish. Each gets every message, in the publisher's order;
// one that was not acknowledged may come again, with DUP.
func TestSessionsMove(t *testing.T) {
	addr, b := start(t, 4, Config{MaxQueue: 100_000, MaxInflight: 10})
	const publishers, subscribers, messages = 3, 8, 400
	var work sync.WaitGroup
	for i := range subscribers {
		p := mustConnect(t, addr, fmt.Sprint("sub", i))
		packet, err := mqtt.AppendSubscribe(nil, mqtt.V5, 1, nil, mqtt.Subscription{Filter: []byte("p/+"), QoS: byte(1 + i%2)})
		p.send(t, packet, err)
		if _, err := p.next(); err != nil {
			t.Fatal(err)
		}
		work.Go(func() { checkSubscriber(t, addr, i, p, publishers, messages) })
	}
	for i := range publishers {
		p := mustConnect(t, addr, fmt.Sprint("pub", i))
		work.Go(func() {
			for n := range messages {
				m := mqtt.Publish{QoS: 1, ID: 1, Topic: fmt.Append(nil, "p/", i), Payload: fmt.Append(nil, n)}
				packet, err := m.Append(nil, mqtt.V5)
				if err == nil {
					_, err = p.nc.Write(packet)
				}
				if err == nil {
					_, err = p.next()
				}
				if err != nil {
					t.Errorf("publisher %d, message %d: %v", i, n, err)
					return
				}
			}
		})
	}
	work.Wait()
	testkit.Eventually(t, "all moves are over", func() bool {
		return b.counts.sessions.Load() == publishers+subscribers
	})
}

// checkSubscriber receives until the last message of each publisher has come.
func checkSubscriber(t *testing.T, addr string, i int, p *peer, publishers, messages int) {
	rng := rand.New(rand.NewPCG(uint64(i), 1))
	id := fmt.Sprint("sub", i)
	next := make([]int, publishers)
	for missing := publishers * messages; missing > 0; {
		if rng.IntN(30) == 0 {
			if rng.IntN(2) == 0 {
				p.nc.Close()
			}
			again, present, err := join(addr, mqtt.Connect{Version: mqtt.V5, ClientID: []byte(id), Properties: mqtt.Properties(nil).AppendNumber(mqtt.SessionExpiry, 3600)})
			if err != nil || !present {
				t.Errorf("%s comes back: session %v, error %v", id, present, err)
				return
			}
			p.nc.Close()
			p = again
		}
		frame, err := p.next()
		if err != nil {
			t.Errorf("%s, %d messages missing, next %v: %v", id, missing, next, err)
			return
		}
		if mqtt.TypeOf(frame) == mqtt.PUBREL {
			a, _ := mqtt.ParseAck(frame, mqtt.V5)
			done, _ := (&mqtt.Ack{Type: mqtt.PUBCOMP, ID: a.ID}).Append(nil, mqtt.V5)
			_, _ = p.nc.Write(done) // a failure shows at the next read
			continue
		}
		m, err := mqtt.ParsePublish(frame, mqtt.V5)
		if err != nil {
			t.Errorf("%s got % x: %v", id, frame, err)
			return
		}
		from, _ := strconv.Atoi(strings.TrimPrefix(string(m.Topic), "p/"))
		n, _ := strconv.Atoi(string(m.Payload))
		switch {
		case n == next[from]:
			next[from]++
			missing--
		case n > next[from] || !m.Dup:
			t.Errorf("%s got message %d of %d (DUP %v), want %d", id, n, from, m.Dup, next[from])
			return
		}
		ack := mqtt.Ack{Type: mqtt.PUBACK, ID: m.ID}
		if m.QoS == 2 {
			ack.Type = mqtt.PUBREC
		}
		packet, _ := ack.Append(nil, mqtt.V5)
		_, _ = p.nc.Write(packet)
	}
	p.nc.Close()
}
