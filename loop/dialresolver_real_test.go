package loop_test

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/internal/rig"
	"github.com/loopwheel/loopwheel/loop"
)

// resolver is the address of a test's name server, nil: the system's.
var resolver atomic.Pointer[string]

// The resolver is the same in all tests: one that was given up may still be at work when a test
// ends.
func init() {
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
		if own := resolver.Load(); own != nil {
			network, addr = "udp", *own
		}
		return new(net.Dialer).DialContext(ctx, network, addr)
	}}
}

// resolveBy has names resolved as by says, until the test ends. What it has no addresses for gets
// no answer.
func resolveBy(t *testing.T, by map[string][]string) {
	t.Helper()
	pc, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { pc.Close() })
	own := pc.LocalAddr().String()
	resolver.Store(&own)
	t.Cleanup(func() { resolver.Store(nil) })
	go func() {
		buf := make([]byte, 1500)
		for {
			n, from, err := pc.ReadFrom(buf)
			if err != nil {
				return
			}
			if answer := nameAnswer(buf[:n], by); answer != nil {
				_, _ = pc.WriteTo(answer, from)
			}
		}
	}()
}

// nameAnswer answers a DNS query for A or AAAA.
func nameAnswer(q []byte, by map[string][]string) []byte {
	name, at := "", 12
	for q[at] != 0 {
		name += string(q[at+1:at+1+int(q[at])]) + "."
		at += 1 + int(q[at])
	}
	addrs, ok := by[name]
	if !ok {
		return nil
	}
	qtype := binary.BigEndian.Uint16(q[at+1:])
	var records []byte
	count := uint16(0)
	for _, s := range addrs {
		ip := netip.MustParseAddr(s)
		if ip.Is4() != (qtype == 1) {
			continue
		}
		count++
		records = append(records, 0xc0, 12, 0, byte(qtype), 0, 1, 0, 0, 0, 60, 0, byte(len(ip.AsSlice())))
		records = append(records, ip.AsSlice()...)
	}
	answer := append([]byte{q[0], q[1], 0x81, 0x80, 0, 1, byte(count >> 8), byte(count), 0, 0, 0, 0}, q[12:at+5]...)
	return append(answer, records...)
}

// Of the addresses of a name one hangs, which has its share of the time, and the next one is tried.
func TestDialTriesAddresses(t *testing.T) {
	hole := strings.TrimPrefix(blackhole(t), "tcp://")
	_, port, _ := net.SplitHostPort(hole)
	ln, err := net.Listen("tcp", "127.0.0.2:"+port)
	if err != nil {
		t.Skip("127.0.0.2 is not an address here: ", err)
	}
	defer ln.Close()
	resolveBy(t, map[string][]string{
		"two.test.":  {"127.0.0.1", "127.0.0.2"},
		"none.test.": {"127.0.0.3", "127.0.0.4", "127.0.0.5"},
	})
	bothEngines(t, func(t *testing.T, ctx context.Context) {
		client := &loop.Server{NumLoops: 1}
		startWith(t, ctx, client)
		l := client.Loops()[0]
		if os.Getenv("LOOPWHEEL_SLOW") == "" {
			t.Skip("takes 6 s; LOOPWHEEL_SLOW=1 runs it")
		}
		o := dialOn(t, loop.Dialer{Timeout: 10 * time.Second}, l, "tcp://two.test.:"+port)
		if o.err != nil || o.conn.RemoteAddr().String() != ln.Addr().String() {
			t.Errorf("%v, %v", o.conn, o.err)
		}
		if o := dialOn(t, loop.Dialer{}, l, "tcp://none.test.:"+port); !errors.Is(o.err, syscall.ECONNREFUSED) {
			t.Errorf("none accepts: %v", o.err)
		}
		rig.HasConns(t, client, 1)
	})
}

// A resolver that does not answer is waited for until the time is over.
func TestDialResolverHangs(t *testing.T) {
	resolveBy(t, nil)
	bothEngines(t, func(t *testing.T, ctx context.Context) {
		client := &loop.Server{NumLoops: 1, Limits: loop.Limits{MaxConns: 3}}
		startWith(t, ctx, client)
		l := client.Loops()[0]
		for _, addr := range []string{"tcp://hangs.test.:1", "udp://hangs.test.:1"} {
			for range 5 { // more than MaxConns, one after the other
				o := dialOn(t, loop.Dialer{Timeout: 20 * time.Millisecond}, l, addr)
				if !errors.Is(o.err, os.ErrDeadlineExceeded) {
					t.Errorf("%s: %v", addr, o.err)
				}
				cancel := loop.Dialer{}.Dial(l, addr, func(*loop.Conn, error) loop.Handler {
					t.Error("opened after cancel")
					return nil
				})
				begun := make(chan struct{})
				_ = l.Post(func() { close(begun) })
				receive(t, begun, "the attempt")
				cancel()
			}
		}
	})
}

// A UDP name may have addresses of a family that cannot be reached from the local address.
func TestUDPDialTriesAddresses(t *testing.T) {
	peer, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer peer.Close()
	_, port, _ := net.SplitHostPort(peer.LocalAddr().String())
	resolveBy(t, map[string][]string{"both.test.": {"::1", "127.0.0.1"}, "six.test.": {"::1", "2001:db8::1"}})
	bothEngines(t, func(t *testing.T, ctx context.Context) {
		client := &loop.Server{NumLoops: 1}
		startWith(t, ctx, client)
		d := loop.Dialer{LocalAddr: &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)}}
		o := dialOn(t, d, client.Loops()[0], "udp://both.test.:"+port)
		if o.err != nil || o.conn.RemoteAddr().String() != peer.LocalAddr().String() {
			t.Errorf("%v, %v", o.conn, o.err)
		}
		var op *net.OpError
		if o := dialOn(t, d, client.Loops()[0], "udp://six.test.:"+port); !errors.As(o.err, &op) {
			t.Errorf("none can be reached: %v", o.err)
		}
		for _, addr := range []string{"udp://127.0.0.1:0", "udp://both.test.:0"} {
			if o := dialOn(t, loop.Dialer{}, client.Loops()[0], addr); !errors.As(o.err, &op) {
				t.Errorf("%s: %v", addr, o.err)
			}
		}
	})
}
