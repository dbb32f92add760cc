package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/codec/mqtt"
	"github.com/loopwheel/loopwheel/internal/testkit"
)

// process starts the broker's program, which takes over if another one runs, and returns when it serves.
func process(t *testing.T, addr, meet string, flags ...string) *exec.Cmd {
	t.Helper()
	var said strings.Builder
	cmd := testkit.Program(context.Background(), "-addr", "tcp://"+addr, "-loops", "2", "-handover", meet)
	cmd.Args = append(cmd.Args, flags...)
	cmd.Stderr = &said
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if said.Len() > 0 {
			t.Logf("process %d: %s", cmd.Process.Pid, said.String())
		}
	})
	line := make([]byte, 100)
	if n, err := out.Read(line); err != nil || !strings.HasPrefix(string(line[:n]), "listening on") {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		t.Fatalf("the broker says %q, %v, %s", line[:n], err, said.String())
	}
	go func() { _, _ = io.Copy(io.Discard, out) }() // ends with the process
	return cmd
}

// TestHandover: five processes in a row take over while clients publish and receive, over TCP, TLS 1.3
// and WebSocket. All connections stay open. Each subscriber gets all messages in the publisher's order: those of QoS 2 and of QoS 1,
// whose connections never break, exactly once. Retained messages and a session that is away move, too.
func TestHandover(t *testing.T) {
	clients, handovers := 60, 5
	if os.Getenv("LOOPWHEEL_SLOW") != "" {
		clients = 2000
		testkit.NeedFiles(t, 3*clients)
	}
	addr, tlsAddr, wsAddr, meet := testkit.FreeAddr(t), testkit.FreeAddr(t), testkit.FreeAddr(t), filepath.Join(t.TempDir(), "meet")
	cert, key := testkit.CertificateFiles(t, testkit.Certificate("localhost"))
	flags := []string{"-tls", "tcp://" + tlsAddr, "-cert", cert, "-key", key, "-ws", "tcp://" + wsAddr}
	ways := []string{addr, "tls:" + tlsAddr, "ws:" + wsAddr}
	current := process(t, addr, meet, flags...)

	away := mustConnect(t, addr, "away")
	subscribe(t, away, "p/0", 1)
	away.nc.Close()
	retained := mqtt.Publish{QoS: 1, ID: 1, Retain: true, Topic: []byte("kept"), Payload: []byte("kept")}
	packet, err := retained.Append(nil, mqtt.V5)
	publisher := mustConnect(t, addr, "retains")
	publisher.send(t, packet, err)
	if _, err := publisher.next(); err != nil {
		t.Fatal(err)
	}

	var publishers, subscribers sync.WaitGroup
	var stop atomic.Bool
	var all atomic.Int64
	sent := make([]atomic.Int64, clients/2)
	ended := make(chan struct{}) // closed when all publishers have
	for i := range clients / 2 {
		qos := byte(1 + i%2)
		sub := mustConnect(t, ways[i%3], fmt.Sprint("sub", i))
		subscribe(t, sub, fmt.Sprint("p/", i), qos)
		subscribers.Go(func() { count(t, i, sub, &sent[i], ended) })
		pub := mustConnect(t, ways[(i+1)%3], fmt.Sprint("pub", i))
		publishers.Go(func() {
			rate := time.NewTicker(time.Duration(clients) * 500 * time.Microsecond) // of all: 1,000 a second
			defer rate.Stop()
			for n := 0; !stop.Load(); n++ {
				<-rate.C
				if err := publishOne(pub, fmt.Sprint("p/", i), qos, n); err != nil {
					t.Errorf("publisher %d, message %d: %v", i, n, err)
					return
				}
				sent[i].Add(1)
				all.Add(1)
			}
		})
	}
	for range handovers {
		next := process(t, addr, meet, flags...)
		if err := current.Wait(); err != nil {
			t.Fatalf("the old process: %v", err)
		}
		current = next
		before := all.Load()
		testkit.Eventually(t, "load between two handovers", func() bool { return all.Load() > before+int64(clients) })
	}
	stop.Store(true)
	publishers.Wait()
	close(ended)
	subscribers.Wait()

	late := mustConnect(t, addr, "late")
	subscribe(t, late, "kept", 1)
	frame, err := late.next()
	if err != nil {
		t.Fatal(err)
	}
	if m, err := mqtt.ParsePublish(frame, mqtt.V5); err != nil || !m.Retain || string(m.Payload) != "kept" {
		t.Errorf("the retained message is %+v, %v", m, err)
	}
	back, present, err := join(addr, mqtt.Connect{Version: mqtt.V5, ClientID: []byte("away")})
	if err != nil || !present {
		t.Fatalf("the client that was away: session %v, error %v", present, err)
	}
	defer back.nc.Close()
	done := make(chan struct{})
	close(done)
	count(t, 0, back, &sent[0], done)
}

func subscribe(t *testing.T, p *peer, filter string, qos byte) {
	t.Helper()
	packet, err := mqtt.AppendSubscribe(nil, mqtt.V5, 1, nil, mqtt.Subscription{Filter: []byte(filter), QoS: qos})
	p.send(t, packet, err)
	if frame, err := p.next(); err != nil || mqtt.TypeOf(frame) != mqtt.SUBACK {
		t.Fatalf("SUBSCRIBE is answered by % x, %v", frame, err)
	}
}

// publishOne publishes the number n and waits for all acknowledgements.
func publishOne(p *peer, topic string, qos byte, n int) error {
	id := uint16(n%60_000 + 1)
	m := mqtt.Publish{QoS: qos, ID: id, Topic: []byte(topic), Payload: strconv.AppendInt(nil, int64(n), 10)}
	packet, err := m.Append(nil, mqtt.V5)
	for want := (mqtt.PUBACK) + mqtt.Type(qos) - 1; err == nil; want = mqtt.PUBCOMP {
		if _, err = p.nc.Write(packet); err != nil {
			break
		}
		var frame []byte
		if frame, err = p.next(); err != nil {
			break
		}
		a, err := mqtt.ParseAck(frame, mqtt.V5)
		if err != nil || a.Type != want || a.ID != id || a.Code >= 0x80 {
			return fmt.Errorf("got % x, %v; want %v of %d", frame, err, want, id)
		}
		if want != mqtt.PUBREC {
			return nil
		}
		packet, _ = (&mqtt.Ack{Type: mqtt.PUBREL, ID: id}).Append(nil, mqtt.V5)
	}
	return err
}

// count receives the numbers of a publisher, without a gap and each once, until there are no more.
func count(t *testing.T, i int, p *peer, sent *atomic.Int64, ended <-chan struct{}) {
	for next := 0; ; {
		select {
		case <-ended:
			if next == int(sent.Load()) {
				return
			}
		default:
		}
		frame, err := p.nextWithin(100 * time.Millisecond)
		if os.IsTimeout(err) {
			continue
		}
		if err != nil {
			t.Errorf("subscriber %d, after %d of %d messages: %v", i, next, sent.Load(), err)
			return
		}
		ack := mqtt.Ack{Type: mqtt.PUBACK}
		switch mqtt.TypeOf(frame) {
		case mqtt.PUBREL:
			a, _ := mqtt.ParseAck(frame, mqtt.V5)
			ack.Type, ack.ID = mqtt.PUBCOMP, a.ID
		default:
			m, err := mqtt.ParsePublish(frame, mqtt.V5)
			n, _ := strconv.Atoi(string(m.Payload))
			if err != nil || n != next || m.Dup {
				t.Errorf("subscriber %d got message %d (DUP %v), % x, %v; want %d", i, n, m.Dup, frame, err, next)
				return
			}
			next++
			ack.ID = m.ID
			if m.QoS == 2 {
				ack.Type = mqtt.PUBREC
			}
		}
		packet, err := ack.Append(nil, mqtt.V5)
		if err == nil {
			_, err = p.nc.Write(packet)
		}
		if err != nil {
			t.Errorf("subscriber %d: %v", i, err)
			return
		}
	}
}
