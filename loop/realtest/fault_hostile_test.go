package realtest_test

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/internal/rig"
	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop"
)

// hostileCodecs are what the hostile server speaks, one on each port.
var hostileCodecs = []codec.Codec{
	codec.Lines{},
	codec.Delimiter{Delim: "\r\n\r\n"},
	codec.Fixed{Size: 32},
	codec.Varint{},
	codec.Length{},
	codec.Length{Size: 8},
	codec.Length{Offset: 2, Size: 2, LittleEndian: true, Adjust: 4, Strip: 4},
	codec.Length{Size: 4, Inclusive: true, Max: 1 << 20},
	codec.Raw{},
}

// hostileFirstByte is how long the hostile server waits for the first byte.
const hostileFirstByte = 300 * time.Millisecond

// hostileChild echoes, by all codecs, with all limits on.
func hostileChild() {
	accept := func(c *loop.Conn) loop.Handler {
		c.OnIdle(loop.WriteStalled, 500*time.Millisecond, func(int) { c.Close() })
		return loop.HandlerFunc(echo)
	}
	srv := &loop.Server{
		NumLoops:    2,
		Limits:      loop.Limits{MaxConns: 500, MaxConnsPerIP: 450, MaxOutbound: 256 << 10, Refusal: []byte("no\n")},
		IdleTimeout: time.Second,
		Timeouts:    loop.Timeouts{FirstByte: hostileFirstByte, Frame: 500 * time.Millisecond, Close: 500 * time.Millisecond},
		Accept:      accept,
		Codec:       hostileCodecs[0],
		Logger:      zerolog.New(io.Discard),
	}
	for _, cd := range hostileCodecs[1:] {
		srv.Listeners = append(srv.Listeners, loop.Listener{Addr: "tcp://127.0.0.1:0", Codec: cd})
	}
	servePuppet(srv, func([]string) string {
		var addrs []string
		for _, a := range srv.Addrs() {
			addrs = append(addrs, a.String())
		}
		return strings.Join(addrs, " ")
	})
}

// An attacker is one hostile client after the other, chosen by its seed.
type attacker struct {
	r     *rand.Rand
	addrs []string
	count []atomic.Int64 // by the index in attacks
}

// attacks are what an attacker does with a connection. What comes back, or that the server closes,
// is no matter.
var attacks = [...]func(a *attacker, c net.Conn){
	(*attacker).garbage,
	(*attacker).lengths,
	(*attacker).half,
	(*attacker).reset,
	(*attacker).loris,
	(*attacker).deaf,
	(*attacker).halfClose,
	(*attacker).flood,
}

func (a *attacker) run(stop <-chan struct{}) {
	for {
		select {
		case <-stop:
			return
		default:
		}
		c, err := a.dial()
		if err != nil {
			time.Sleep(time.Millisecond) // the server refuses so many
			continue
		}
		_ = c.SetDeadline(time.Now().Add(2 * time.Second))
		i := a.r.IntN(len(attacks))
		attacks[i](a, c)
		a.count[i].Add(1)
		c.Close()
	}
}

// dial is plain half of the time: if the server speaks TLS the attack is on that.
func (a *attacker) dial() (net.Conn, error) {
	dial := net.Dial
	if a.r.IntN(2) == 0 {
		dial = connect
	}
	return dial("tcp", a.addrs[a.r.IntN(len(a.addrs))])
}

func (a *attacker) bytes(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(a.r.Uint32())
	}
	return b
}

// garbage sends bytes that mean nothing, and reads what comes for a while.
func (a *attacker) garbage(c net.Conn) {
	for range a.r.IntN(10) {
		if _, err := c.Write(a.bytes(a.r.IntN(100_000))); err != nil {
			return
		}
	}
	_ = c.SetDeadline(time.Now().Add(50 * time.Millisecond))
	_, _ = io.Copy(io.Discard, c)
}

// lengths announces frames of sizes at which programs have erred.
func (a *attacker) lengths(c net.Conn) {
	edges := []uint64{0, 1, 1 << 15, 1 << 16, 1 << 20, math.MaxInt32, math.MaxUint32, math.MaxInt64, math.MaxUint64}
	var b []byte
	for range 1 + a.r.IntN(20) {
		n := edges[a.r.IntN(len(edges))] + uint64(a.r.IntN(5)) - 2
		switch a.r.IntN(4) {
		case 0:
			b = binary.BigEndian.AppendUint64(b, n)
		case 1:
			b = binary.BigEndian.AppendUint32(b, uint32(n))
		case 2:
			b = binary.LittleEndian.AppendUint16(b, uint16(n))
		case 3:
			b = binary.AppendUvarint(b, n)
		}
		b = append(b, a.bytes(a.r.IntN(40))...)
	}
	_, _ = c.Write(b)
	_ = c.SetDeadline(time.Now().Add(20 * time.Millisecond))
	_, _ = io.Copy(io.Discard, c)
}

// half sends a good beginning, in pieces, and leaves.
func (a *attacker) half(c net.Conn) {
	frame, _ := hostileCodecs[a.r.IntN(len(hostileCodecs))].AppendFrame(nil, a.bytes(32))
	if len(frame) > 0 {
		frame = frame[:a.r.IntN(len(frame))]
	}
	for len(frame) > 0 {
		n := 1 + a.r.IntN(len(frame))
		_, _ = c.Write(frame[:n])
		frame = frame[n:]
		time.Sleep(time.Duration(a.r.IntN(3)) * time.Millisecond) // the pieces come one by one
	}
}

// reset leaves with a reset, at once or after a few bytes.
func (a *attacker) reset(c net.Conn) {
	_ = tcpBelow(c).SetLinger(0)
	if a.r.IntN(2) == 0 {
		_, _ = c.Write(a.bytes(a.r.IntN(1000)))
	}
}

// loris sends next to nothing for as long as it may.
func (a *attacker) loris(c net.Conn) {
	for range a.r.IntN(20) {
		if _, err := c.Write([]byte{'a'}); err != nil {
			return
		}
		time.Sleep(time.Duration(a.r.IntN(100)) * time.Millisecond) // that is the attack
	}
}

// deaf asks for a lot and reads nothing.
func (a *attacker) deaf(c net.Conn) {
	_ = c.SetWriteDeadline(time.Now().Add(300 * time.Millisecond))
	line := []byte(strings.Repeat("x", 30) + "\r\n\r\n")
	for {
		if _, err := c.Write([]byte(strings.Repeat(string(line), 1000))); err != nil {
			return
		}
	}
}

// halfClose ends its output and stays.
func (a *attacker) halfClose(c net.Conn) {
	_, _ = c.Write(a.bytes(a.r.IntN(10_000)))
	_ = c.(interface{ CloseWrite() error }).CloseWrite()
	_ = c.SetDeadline(time.Now().Add(100 * time.Millisecond))
	_, _ = io.Copy(io.Discard, c)
}

// flood opens many connections at once.
func (a *attacker) flood(net.Conn) {
	var conns []net.Conn
	for range a.r.IntN(200) {
		c, err := net.Dial("tcp", a.addrs[a.r.IntN(len(a.addrs))])
		if err != nil {
			break
		}
		conns = append(conns, c)
	}
	for _, c := range conns {
		_ = tcpBelow(c).SetLinger(0) // the ports are needed again
		c.Close()
	}
}

// Hostile clients do what they can. The server goes on; when they have gone it has the memory, the
// goroutines and the descriptors that it had before.
//
// Memory is what /proc says is resident and not of a file, such as the program, after a collection
// that gives all it can back to the system. Before means after a few seconds of the same, as the
// first use of buffers counts for nothing.
func TestFaultHostileClients(t *testing.T) {
	needSlow(t, "hostile clients for as long as "+rig.FaultTimeEnv+" says, or 20 s")
	needLinux(t)
	server := startPuppet(t, "hostile")
	server.address()
	addrs := strings.Fields(server.ask("addrs"))
	seed := testkit.Seed(t, 1)
	attack(t, addrs, seed, 3*time.Second)
	before := server.settled()
	count := attack(t, addrs, seed+1, faultTime(t, 20*time.Second))
	memory, heap := before.memory+before.memory/10+2<<20, before.heap+before.heap/10+256<<10
	var after footprint
	// Loops give back the buffers that they keep when these have not been used for a while.
	testkit.Eventually(t, fmt.Sprintf("little more memory than before: %v", before), func() bool {
		after = server.settled()
		t.Logf("after: %v", after)
		return after.memory <= memory && after.heap <= heap
	})
	t.Logf("%d connections; server: %s", count, server.ask("stats"))
	spare := 0
	if overTLS() {
		spare = 2 * 16 // coroutines that loops keep for handshakes
	}
	if after.goroutines > before.goroutines+spare || after.fds > before.fds {
		t.Errorf("goroutines or descriptors have leaked")
	}
	if n := server.number("panics"); n != 0 {
		t.Errorf("%d panics", n)
	}
	honest(t, addrs[0])
	server.ends()
}

// honest wants an echo. Who says nothing for as long as the server allows is closed, though: also
// if that was because the machine stood still.
func honest(t *testing.T, addr string) {
	t.Helper()
	testkit.Eventually(t, "an honest client is served", func() bool {
		began := time.Now()
		c, err := connect("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err = roundTrip(c); err != nil && time.Since(began) < hostileFirstByte {
			t.Fatalf("an honest client: %v", err)
		}
		return err == nil
	})
}

// attack lets hostile clients loose for d, and returns how many connections they made.
func attack(t *testing.T, addrs []string, seed uint64, d time.Duration) (total int64) {
	count := make([]atomic.Int64, len(attacks))
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for i := range uint64(100) {
		a := &attacker{r: rand.New(rand.NewPCG(seed, i)), addrs: addrs, count: count}
		wg.Go(func() { a.run(stop) })
	}
	time.Sleep(d) // that is for how long they attack
	close(stop)
	wg.Wait()
	for i := range count {
		n := count[i].Load()
		if total += n; n == 0 {
			t.Errorf("attack %d was never made", i)
		}
	}
	return total
}

// A footprint is what a process holds when it has nothing to do.
type footprint struct{ memory, heap, goroutines, fds int }

func (f footprint) String() string {
	return fmt.Sprintf("%.1f MiB resident, %.2f MiB of it heap, %d goroutines, %d descriptors",
		float64(f.memory)/(1<<20), float64(f.heap)/(1<<20), f.goroutines, f.fds)
}

// settled waits until all connections have gone, and returns the footprint.
func (p *puppet) settled() footprint {
	p.t.Helper()
	testkit.Eventually(p.t, "all connections have gone", func() bool { return p.number("conns") == 0 })
	time.Sleep(1500 * time.Millisecond) // those that linger
	p.ask("gc")
	p.ask("gc")
	return footprint{p.memory("RssAnon"), p.number("heap"), p.number("goroutines"), p.number("fds")}
}
