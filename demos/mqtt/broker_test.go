package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gobwas/ws"
	"github.com/gobwas/ws/wsutil"
	"github.com/rs/zerolog"

	"github.com/loopwheel/loopwheel/codec/mqtt"
	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/looptest"
	"github.com/loopwheel/loopwheel/loop/looptest/wstest"
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

// dial connects to host:port, or over TLS 1.3 or WebSocket to tls:host:port or ws:host:port.
func dial(addr string) (net.Conn, error) {
	if addr, ok := strings.CutPrefix(addr, "tls:"); ok {
		return tls.Dial("tcp", addr, &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS13})
	}
	addr, ok := strings.CutPrefix(addr, "ws:")
	if !ok {
		return net.Dial("tcp", addr)
	}
	nc, r, _, err := ws.Dialer{Protocols: []string{"mqtt"}}.Dial(context.Background(), "ws://"+addr+"/")
	if err != nil {
		return nil, err
	}
	if r != nil {
		return nil, errors.New("the broker has sent something before CONNECT")
	}
	here, there := net.Pipe()
	go func() { // NextReader would lose the part of a frame that is there at a deadline
		defer nc.Close()
		for {
			b, err := wsutil.ReadServerBinary(nc)
			if err == nil {
				_, err = there.Write(b)
			}
			if err != nil {
				there.Close()
				return
			}
		}
	}()
	return webSocket{here, nc}, nil
}

// A webSocket reads what its goroutine has taken out of frames, and writes frames.
type webSocket struct {
	net.Conn
	nc net.Conn
}

func (w webSocket) Write(b []byte) (int, error) { return len(b), wsutil.WriteClientBinary(w.nc, b) }
func (w webSocket) Close() error                { return errors.Join(w.Conn.Close(), w.nc.Close()) }

// join connects a client and returns whether the broker had a session of it.
func join(addr string, c mqtt.Connect) (p *peer, present bool, err error) {
	nc, err := dial(addr)
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

// ask sends a packet and returns the next one that comes.
func (p *peer) ask(t *testing.T, packet []byte, err error) []byte {
	t.Helper()
	p.send(t, packet, err)
	frame, err := p.next()
	if err != nil {
		t.Fatal(err)
	}
	return frame
}

// subscribeV5 is a SUBSCRIBE to filters, with QoS 0.
func subscribeV5(p mqtt.Properties, filters ...string) ([]byte, error) {
	var all []mqtt.Subscription
	for _, f := range filters {
		all = append(all, mqtt.Subscription{Filter: []byte(f)})
	}
	return mqtt.AppendSubscribe(nil, mqtt.V5, 1, p, all...)
}

// TestLimits: what would take much memory or time of others is refused.
func TestLimits(t *testing.T) {
	addr, b := start(t, 1, Config{MaxSubscriptions: 2, MaxRetained: 2, Deny: []string{"secret"}})
	connect := func(t *testing.T, will *mqtt.Will) (*peer, error) {
		p, _, err := join(addr, mqtt.Connect{Version: mqtt.V5, ClientID: []byte(t.Name()), CleanStart: true, Will: will})
		if err == nil {
			t.Cleanup(func() { p.nc.Close() })
		}
		return p, err
	}
	t.Run("a will with 300 levels", func(t *testing.T) {
		if _, err := connect(t, &mqtt.Will{Topic: bytes.Repeat([]byte("/"), 300)}); !errors.Is(err, io.EOF) {
			t.Errorf("CONNECT: %v, want the end", err)
		}
	})
	for filter, want := range map[string]mqtt.ReasonCode{
		"secret": mqtt.UnspecifiedError, "$share/g/secret": mqtt.UnspecifiedError,
		strings.Repeat("+/", 16) + "+": mqtt.QuotaExceeded, strings.Repeat("x", 1024): mqtt.QuotaExceeded,
	} {
		t.Run("a filter with "+filter[:6], func(t *testing.T) {
			p, err := connect(t, nil)
			if err != nil {
				t.Fatal(err)
			}
			packet, err := subscribeV5(nil, filter)
			if ack, err := mqtt.ParseSubAck(p.ask(t, packet, err), mqtt.V5); err != nil || ack.Codes[0] != byte(want) {
				t.Errorf("SUBACK has % x, %v; want %v", ack.Codes, err, want)
			}
		})
	}
	t.Run("retained messages", func(t *testing.T) {
		for _, step := range []struct {
			topic string
			bytes int
			full  bool
		}{
			{"a", 1, false}, {"b", 1, false}, {"c", 1, true}, {"c", 0, true}, {"a", 2, false}, {"a", 0, false}, {"b", 0, false},
		} {
			want := mqtt.NoMatchingSubscribers
			will := mqtt.Success
			if step.full {
				want, will = mqtt.QuotaExceeded, mqtt.QuotaExceeded
			}
			payload := make([]byte, step.bytes)
			_, err := connect(t, &mqtt.Will{Topic: []byte(step.topic), Payload: payload, Retain: true})
			if (err == nil) != (will == mqtt.Success) {
				t.Errorf("CONNECT with a will to %s of %d bytes: %v, want %v", step.topic, step.bytes, err, will)
			}
			p, err := connect(t, nil)
			if err != nil {
				t.Fatal(err)
			}
			packet, err := (&mqtt.Publish{QoS: 1, ID: 1, Retain: true, Topic: []byte(step.topic), Payload: payload}).Append(nil, mqtt.V5)
			if ack, err := mqtt.ParseAck(p.ask(t, packet, err), mqtt.V5); err != nil || ack.Code != want {
				t.Errorf("PUBLISH to %s with %d bytes: %v, %v; want %v", step.topic, step.bytes, ack.Code, err, want)
			}
		}
	})
	t.Run("one filter 10,000 times", func(t *testing.T) {
		p, err := connect(t, nil)
		if err != nil {
			t.Fatal(err)
		}
		packet, err := (&mqtt.Publish{QoS: 1, ID: 1, Retain: true, Topic: []byte("a"), Payload: []byte("x")}).Append(nil, mqtt.V5)
		p.ask(t, packet, err)
		packet, err = subscribeV5(nil, slices.Repeat([]string{"#"}, 10_000)...)
		p.ask(t, packet, err)
		for _, want := range []mqtt.Type{mqtt.PUBLISH, mqtt.PINGRESP} {
			if got := mqtt.TypeOf(p.ask(t, mqtt.AppendPing(nil, mqtt.PINGREQ), nil)); got != want {
				t.Errorf("got %v, want %v", got, want)
			}
		}
	})
	if got := b.srv.Stats().Panics; got != 0 {
		t.Errorf("%d panics, want 0", got)
	}
}

// TestUnacknowledged: a client is sent no more of QoS 1 and 2 when much is unacknowledged, and goes on
// when it acknowledges.
func TestUnacknowledged(t *testing.T) {
	addr, _ := start(t, 1, Config{MaxPending: 1000})
	for qos := byte(1); qos <= 2; qos++ {
		t.Run(fmt.Sprint("QoS ", qos), func(t *testing.T) {
			p := mustConnect(t, addr, t.Name())
			packet, err := mqtt.AppendSubscribe(nil, mqtt.V5, 1, nil, mqtt.Subscription{Filter: []byte("own"), QoS: qos})
			p.ask(t, packet, err)
			packet = packet[:0]
			for id := range uint16(5) { // the third exceeds MaxPending
				m := mqtt.Publish{QoS: qos, ID: id + 1, Topic: []byte("own"), Payload: make([]byte, 400)}
				if packet, err = m.Append(packet, mqtt.V5); err != nil {
					t.Fatal(err)
				}
			}
			p.send(t, mqtt.AppendPing(packet, mqtt.PINGREQ), nil)
			want := func(n int) (id uint16) {
				t.Helper()
				for got := 0; ; {
					frame, err := p.next()
					if err != nil {
						t.Fatal(err)
					}
					switch mqtt.TypeOf(frame) {
					case mqtt.PUBLISH:
						m, _ := mqtt.ParsePublish(frame, mqtt.V5)
						got++
						id = m.ID
					case mqtt.PINGRESP:
						if got != n {
							t.Errorf("got %d messages, want %d", got, n)
						}
						return id
					}
				}
			}
			id := want(3)
			done := mqtt.PUBACK
			if packet = packet[:0]; qos == 2 {
				for range 2 { // the second is answered as the first
					packet, _ = (&mqtt.Ack{Type: mqtt.PUBREC, ID: id}).Append(packet, mqtt.V5)
				}
				done = mqtt.PUBCOMP
			}
			packet, err = (&mqtt.Ack{Type: done, ID: id}).Append(packet, mqtt.V5)
			p.send(t, mqtt.AppendPing(packet, mqtt.PINGREQ), err)
			want(1)
		})
	}
}

// TestTruncated: packets of all types that end at each byte, in the middle of the stream or by their
// length, before CONNECT and after it, are answered or end the connection, and nothing else.
func TestTruncated(t *testing.T) {
	addr, b := start(t, 2, Config{})
	user := mqtt.Properties(nil).AppendUser("k", "v")
	for _, v := range []mqtt.Version{mqtt.V311, mqtt.V5} {
		hello := mqtt.Connect{Version: v, CleanStart: true, ClientID: []byte("cut"), HasUsername: true, Username: []byte("u"), HasPassword: true,
			Will: &mqtt.Will{QoS: 1, Topic: []byte("w"), Payload: []byte("w"), Properties: user}, Properties: user}
		packets := [][]byte{mqtt.AppendPing(nil, mqtt.PINGREQ), {byte(mqtt.AUTH) << 4, 0}}
		add := func(packet []byte, err error) {
			if err != nil {
				t.Fatal(err)
			}
			packets = append(packets, packet)
		}
		add(hello.Append(nil))
		add((&mqtt.Connack{Properties: user}).Append(nil, v))
		for qos := range byte(3) {
			add((&mqtt.Publish{QoS: qos, ID: 1, Topic: []byte("a/b"), Payload: []byte("p"), Properties: user}).Append(nil, v))
		}
		for typ := mqtt.PUBACK; typ <= mqtt.PUBCOMP; typ++ {
			add((&mqtt.Ack{Type: typ, ID: 1, Properties: user}).Append(nil, v))
		}
		add(mqtt.AppendSubscribe(nil, v, 1, user, mqtt.Subscription{Filter: []byte("a/+"), QoS: 1}, mqtt.Subscription{Filter: []byte("$share/g/#")}))
		add(mqtt.AppendUnsubscribe(nil, v, 1, user, []byte("a/+")))
		if d := (mqtt.Disconnect{Properties: user}); v == mqtt.V5 {
			add(d.Append(nil, v))
		}
		for _, packet := range packets {
			for n := 1; n <= len(packet); n++ {
				shorter := bytes.Clone(packet[:n])
				if n > 1 {
					shorter[1] = byte(n - 2)
				}
				for _, cut := range [][]byte{packet[:n], shorter} {
					nc, err := net.Dial("tcp", addr)
					if err != nil {
						t.Fatal(err)
					}
					_, _ = nc.Write(cut) // before CONNECT
					_ = nc.Close()
					p, _, err := join(addr, mqtt.Connect{Version: v, CleanStart: true, ClientID: []byte("whole")})
					if err != nil {
						t.Fatal(err)
					}
					_, _ = p.nc.Write(mqtt.AppendPing(cut[:n:n], mqtt.PINGREQ))
					_ = p.nc.(*net.TCPConn).CloseWrite()
					for err == nil {
						_, err = p.next()
					}
					if _ = p.nc.Close(); os.IsTimeout(err) {
						t.Fatalf("version %v, % x: the connection stays open", v, cut)
					}
				}
			}
		}
	}
	if got := b.srv.Stats().Panics; got != 0 {
		t.Errorf("%d panics, want 0", got)
	}
	testkit.Eventually(t, "all clients and sessions go", func() bool {
		return b.counts.clients.Load() == 0 && b.counts.sessions.Load() == 0 && b.counts.subscriptions.Load() == 0
	})
}

// TestWebSocketFragments: packets need not be aligned with messages and fragments of WebSocket
// [MQTT-6.0.0-2]. A message that is text ends the connection [MQTT-6.0.0-1].
func TestWebSocketFragments(t *testing.T) {
	subscribe, err := subscribeV5(nil, "a")
	if err != nil {
		t.Fatal(err)
	}
	in, err := (&mqtt.Connect{Version: mqtt.V5, CleanStart: true, ClientID: []byte("ws")}).Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	in = append(in, subscribe...)
	if in, err = (&mqtt.Publish{Topic: []byte("a"), Payload: make([]byte, 300)}).Append(in, mqtt.V5); err != nil {
		t.Fatal(err)
	}
	in = mqtt.AppendPing(in, mqtt.PINGREQ)
	const fin, text, binary, ping, more = 0x80, 1, 2, 9, 0
	frame := func(kind byte, payload []byte) []byte { // its mask is zero
		if len(payload) < 126 {
			return append([]byte{kind, 0x80 | byte(len(payload)), 0, 0, 0, 0}, payload...)
		}
		return append([]byte{kind, 0xFE, byte(len(payload) >> 8), byte(len(payload)), 0, 0, 0, 0}, payload...)
	}
	pieces := frame(binary, nil)
	for i := range in {
		pieces = slices.Concat(pieces, frame(more, in[i:i+1]), frame(more, nil), frame(fin|ping, nil))
	}
	for _, tt := range []struct {
		name   string
		frames []byte
		ends   bool
	}{
		{"a fragment for each byte", append(pieces, frame(fin|more, nil)...), false},
		{"all packets in one message", frame(fin|binary, in), false},
		{"a message for each half", append(frame(fin|binary, in[:20]), frame(fin|binary, in[20:])...), false},
		{"text", append(frame(fin|binary, in), frame(fin|text, in)...), true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := &loop.Server{NumLoops: 1}
				srv.Codec = newBroker(Config{}, srv).webSocket()
				p := wstest.Open(t, looptest.Start(t, srv), "/mqtt", http.Header{"Sec-Websocket-Protocol": {"mqtt"}})
				if _, err := p.Write(tt.frames); err != nil {
					t.Fatal(err)
				}
				got := []byte(strings.Join(p.Received(), ""))
				for _, want := range []mqtt.Type{mqtt.CONNACK, mqtt.SUBACK, mqtt.PUBLISH, mqtt.PINGRESP} {
					size, _ := (mqtt.Codec{}).FrameSize(got)
					if len(got) < size || mqtt.TypeOf(got) != want {
						t.Fatalf("got % x, want %v", got, want)
					}
					got = got[size:]
				}
				if ended := p.Reason() != nil; ended != tt.ends {
					t.Errorf("ended %v with %v, want %v", ended, p.Reason(), tt.ends)
				}
			})
		})
	}
}

// TestOwnPackets: subscribers whose packets differ, among those that share one, get what they should.
func TestOwnPackets(t *testing.T) {
	addr, _ := start(t, 1, Config{})
	none := mqtt.Properties(nil)
	var peers []*peer
	for i, props := range []mqtt.Properties{none, none.AppendNumber(mqtt.TopicAliasMaximum, 1), none,
		none.AppendNumber(mqtt.TopicAliasMaximum, 1).AppendNumber(mqtt.MaximumPacketSize, 100), none} {
		p, _, err := join(addr, mqtt.Connect{Version: mqtt.V5, ClientID: fmt.Append(nil, i), CleanStart: true, Properties: props})
		if err != nil {
			t.Fatal(err)
		}
		defer p.nc.Close()
		packet, err := subscribeV5(nil, "big")
		p.ask(t, packet, err)
		peers = append(peers, p)
	}
	for _, payload := range [][]byte{bytes.Repeat([]byte("x"), 60_000), []byte("small")} {
		packet, err := (&mqtt.Publish{Topic: []byte("big"), Payload: payload}).Append(nil, mqtt.V5)
		peers[0].send(t, packet, err)
		for i, p := range peers {
			if i == 3 && len(payload) > 100 { // it takes no packet that long
				continue
			}
			frame, err := p.next()
			if err != nil {
				t.Fatal(err)
			}
			m, err := mqtt.ParsePublish(frame, mqtt.V5)
			alias, _ := m.Properties.Number(mqtt.TopicAlias)
			if known := i == 1 && len(payload) < 100; err != nil || !bytes.Equal(m.Payload, payload) ||
				string(m.Topic) != "big" && !known || (alias > 0) != (i == 1 || i == 3) {
				t.Errorf("subscriber %d got topic %q, alias %d, %d bytes, %v; want %d bytes", i, m.Topic, alias, len(m.Payload), err, len(payload))
			}
		}
	}
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
