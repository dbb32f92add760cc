package tlsconn

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"io"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop/internal/testhook"
)

// moveTo moves s to another loop, by Leave, or as to another process, where ahead is what the engine
// had read. It returns false if s does not move that way.
func (s *server) moveTo(to *rig, process bool, ahead []byte) (moved bool) {
	var state []byte
	s.sock.moves = true
	s.rig.do(func() {}) // what the socket had to tell the old loop
	s.rig.do(func() {
		if process && !s.conn.Movable() {
			s.rig.t.Error("it cannot move")
			return
		}
		if moved = s.conn.Leave(); moved && process {
			state = s.conn.Saved(ahead)
			s.conn.Abandon()
		}
	})
	if !moved {
		return false
	}
	s.rig, s.sock.rig = to, to
	to.do(func() {
		if !process {
			s.conn.Arrive(to.shared, s.sock, s)
			return
		}
		paused := s.conn.paused
		s.sock.paused = false
		var err error
		if s.conn, err = Resume(to.shared, state, s.sock, s); err != nil {
			to.t.Error(err)
			return
		}
		s.sock.sink = s.conn
		if paused {
			_ = s.conn.Pause()
		}
		s.push()
	})
	return true
}

// A connection moves between loops, and between processes, in the middle of traffic in both
// directions, with output that waits, records that are not whole, pauses, updates of the keys of
// both sides, and after the peer's end. The peer notices nothing.
func TestMoves(t *testing.T) {
	seed := testkit.Seed(t, 1)
	for round := range 20 {
		random := rand.New(rand.NewPCG(seed, uint64(round)))
		s, client, k := connectRaw(t, serverConfig())
		if s.conn.tls != nil && !testhook.CryptoTLS() {
			t.Fatal("crypto/tls keeps it")
		}
		rigs := []*rig{s.rig, newRig(t, nil), newRig(t, nil)}
		soon := false
		s.rig.do(func() {
			s.answer, s.linger = echo, true
			s.later = func() { soon = true }
		})
		type result struct {
			data []byte
			err  error
		}
		read := make(chan result, 1)
		go func() {
			data, err := io.ReadAll(client)
			read <- result{data, err}
		}()
		var stream, want []byte
		for range 40 {
			data := pattern(1 + random.IntN(1<<random.IntN(15)))
			want = append(want, data...)
			stream = append(stream, k.record(typeApplication, data)...)
			if random.IntN(4) == 0 {
				stream = append(stream, k.keyUpdate(byte(random.IntN(2)))...)
			}
		}
		stream = append(stream, k.record(21, []byte{1, 0})...)
		moves := 0
		for len(stream) > 0 || random.IntN(20) > 0 {
			n := min(len(stream), 1+random.IntN(1<<random.IntN(16)))
			piece := stream[:n]
			stream = stream[n:]
			switch op := random.IntN(8); op {
			case 0, 1, 2, 3:
				to := rigs[random.IntN(len(rigs))]
				var ahead []byte
				process := op < 2
				s.rig.do(func() {}) // what the socket has to deliver
				s.rig.do(func() {
					process = process && s.conn.tls == nil && len(s.sock.early) == 0
					if process && !s.sock.paused {
						ahead, piece = piece, nil
					}
				})
				if s.moveTo(to, process, ahead) {
					moves++
				}
			case 4:
				s.sock.allow(random.IntN(20_000))
			case 5:
				s.rig.do(func() { _ = s.conn.Pause() })
			case 6:
				s.rig.do(func() { s.conn.Resume() })
			}
			s.sock.feed(piece, 1<<20)
			s.rig.do(func() {
				if soon {
					soon = false
					s.conn.GoOn()
				}
			})
		}
		s.sock.allow(1 << 30)
		testkit.Eventually(t, "the end", func() (ended bool) {
			s.rig.do(func() {
				s.conn.Resume()
				s.conn.GoOn()
				ended = s.ends && len(s.pending) == 0
			})
			return ended
		})
		s.moveTo(rigs[0], s.conn.tls == nil, nil)
		s.rig.do(func() {
			s.conn.GoOn()
			s.send([]byte("last"))
			s.conn.CloseWrite()
		})
		got := <-read
		if got.err != nil {
			t.Errorf("round %d, %d moves: the client reads %v, want no error", round, moves, got.err)
		}
		if !bytes.Equal(got.data, append(want, "last"...)) {
			t.Errorf("round %d, %d moves: %d bytes come back, want the %d that were sent", round, moves, len(got.data), len(want)+4)
		}
		if err := s.end(); err != io.EOF {
			t.Errorf("round %d: ended with %v, want %v", round, err, io.EOF)
		}
		s.rig.do(func() { s.conn.Close() })
	}
}

// The results of the handshake move to another process, except for the exporter. So does the size of
// close_notify.
func TestMoveKeepsState(t *testing.T) {
	for _, ourClient := range []bool{false, true} {
		server, client := serverConfig(), clientConfig()
		server.ClientAuth, server.ClientCAs = tls.RequireAndVerifyClientCert, client.RootCAs
		server.Certificates[0].OCSPStaple = []byte("staple")
		server.Certificates[0].SignedCertificateTimestamps = [][]byte{[]byte("one"), []byte("two")}
		server.NextProtos, client.NextProtos = []string{"a", "b"}, []string{"b"}
		server.CurvePreferences = []tls.CurveID{tls.CurveP256} // a HelloRetryRequest
		client.Certificates = []tls.Certificate{certificate()}
		r := newRig(t, nil)
		s := r.start(Config{TLS: map[bool]*tls.Config{false: server, true: client}[ourClient], Client: ourClient})
		peer := tls.Client(&wire{sock: s.sock, cut: 1 << 20}, client)
		if ourClient {
			peer = tls.Server(&wire{sock: s.sock, cut: 1 << 20}, server)
		}
		if err := peer.Handshake(); err != nil {
			t.Fatal(err)
		}
		<-s.opened
		if s.conn.tls != nil {
			t.Skip("crypto/tls keeps it")
		}
		before, _ := s.conn.State()
		var notify, notifyAfter int
		s.rig.do(func() {
			s.conn.CloseWrite()
			notify = s.conn.CloseNotify()
		})
		s.moveTo(newRig(t, nil), true, nil)
		s.rig.do(func() { notifyAfter = s.conn.CloseNotify() })
		if notifyAfter != notify || notify == 0 {
			t.Errorf("client %v: close_notify has %d bytes after the move, want the %d that were sent", ourClient, notifyAfter, notify)
		}
		after, ok := s.conn.State()
		if !ok {
			t.Fatal("no state after the move")
		}
		for field, was := range reflect.ValueOf(before).Fields() {
			if is := reflect.ValueOf(after).FieldByName(field.Name); field.IsExported() && !reflect.DeepEqual(is.Interface(), was.Interface()) {
				t.Errorf("client %v: %s is %v, want %v", ourClient, field.Name, is, was)
			}
		}
		if _, err := after.ExportKeyingMaterial("test", nil, 16); err == nil {
			t.Errorf("client %v: ExportKeyingMaterial works, want an error", ourClient)
		}
	}
}

// A timer of the loop that a connection has left does not touch it.
func TestMoveLeavesRetry(t *testing.T) {
	var retries []func()
	s := newRig(t, func(cfg *SharedConfig) {
		cfg.After = func(d time.Duration, f func()) {
			if d == minRetry {
				retries = append(retries, f)
			}
		}
	}).serve(serverConfig())
	client, _ := s.dial(clientConfig(), 1<<20)
	if err := client.Handshake(); err != nil {
		t.Fatal(err)
	}
	<-s.opened
	to := newRig(t, nil)
	s.rig.do(func() {
		s.sock.blind, s.sock.room = true, 0
		s.conn.CloseWrite()
		s.conn.Leave()
		s.sock.blind, s.sock.room, s.sock.rig = false, 1<<20, to
		before := s.sock.writes
		for _, f := range retries {
			f()
		}
		if len(retries) != 1 || s.sock.writes != before {
			t.Errorf("%d timers write %d times, want 1 and 0", len(retries), s.sock.writes-before)
		}
	})
	s.rig = to
	to.do(func() { s.conn.Arrive(to.shared, s.sock, s) })
	if n, err := client.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("the client reads %d bytes, %v, want %v", n, err, io.EOF)
	}
}

// What Movable, Leave and Resume refuse.
func TestMoveRefuses(t *testing.T) {
	r := newRig(t, nil)
	s := r.serve(serverConfig())
	r.do(func() {
		if s.conn.Leave() {
			t.Error("Leave works before the handshake")
		}
		if s.conn.Movable() {
			t.Error("it is Movable before the handshake")
		}
	})
	client, _ := s.dial(clientConfig(), 1<<20)
	if err := client.Handshake(); err != nil {
		t.Fatal(err)
	}
	<-s.opened
	if s.conn.tls != nil {
		r.do(func() {
			if s.conn.Movable() {
				t.Error("it is Movable with the keys in crypto/tls")
			}
		})
		return
	}
	var state []byte
	r.do(func() {
		if !s.conn.Leave() {
			t.Error("Leave fails")
		}
		state = s.conn.Saved(nil)
		s.conn.Abandon()
	})
	for _, change := range []func(*moved){
		func(m *moved) { m.Records.CipherSuite = tls.TLS_RSA_WITH_RC4_128_SHA },
		func(m *moved) { m.Records.In.Secret = nil },
		func(m *moved) { m.Settled.Peer = 1 },
		func(m *moved) { m.Settled.Peer = -1 },
		func(m *moved) { m.Settled.Chains = [][]int{{0}} },
		func(m *moved) { m.Settled.Certificates = [][]byte{{1}} },
	} {
		var m moved
		if err := json.Unmarshal(state, &m); err != nil {
			t.Fatal(err)
		}
		change(&m)
		bad, _ := json.Marshal(m)
		for _, bad := range [][]byte{bad, slices.Concat(bad, []byte("x")), nil} {
			if _, err := Resume(r.shared, bad, s.sock, s); err == nil {
				t.Errorf("no error for %s", bad)
			}
		}
	}
}
