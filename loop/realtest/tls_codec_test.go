package realtest_test

import (
	"bytes"
	"crypto/tls"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"testing"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/loop"
)

// choppedConn writes in pieces of random sizes, so that records arrive cut anywhere.
type choppedConn struct {
	net.Conn
	rnd *rand.Rand
}

func (c *choppedConn) Write(p []byte) (n int, err error) {
	for n < len(p) && err == nil {
		k := min(len(p)-n, 1+c.rnd.IntN(5000))
		if c.rnd.IntN(4) == 0 {
			k = min(len(p)-n, 1+c.rnd.IntN(8))
		}
		k, err = c.Conn.Write(p[n : n+k])
		n += k
	}
	return n, err
}

// The checks of codectest for each codec in memory hold after real TLS as well: frames of all
// lengths come out as they went in, however records and segments are cut.
func TestCodecsOverTLS(t *testing.T) {
	for name, c := range map[string]codec.Codec{
		"lines":     codec.Lines{Max: 70_000},
		"delimiter": codec.Delimiter{Delim: "aab", Max: 70_000},
		"fixed":     codec.Fixed{Size: 777},
		"varint":    codec.Varint{},
		"length":    codec.Length{},
		"little":    codec.Length{Size: 3, LittleEndian: true},
		"inclusive": codec.Length{Size: 4, Inclusive: true},
		"raw":       codec.Raw{},
	} {
		t.Run(name, func(t *testing.T) {
			for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
				framesOverTLS(t, c, version)
			}
		})
	}
}

func framesOverTLS(t *testing.T, c codec.Codec, version uint16) {
	rnd := rand.New(rand.NewPCG(uint64(version), 14))
	frames := someFrames(c, rnd)
	addr := secure(t, &loop.Server{Codec: c, MaxOutbound: 16 << 20,
		Accept: func(*loop.Conn) loop.Handler { return loop.HandlerFunc(echo) }})
	var sent, wire []byte
	for _, f := range frames {
		var err error
		if wire, err = c.AppendFrame(wire, f); err != nil {
			t.Fatal(err)
		}
	}
	raw, err := net.Dial("tcp", addr.String())
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	client := tls.Client(&choppedConn{raw, rand.New(rand.NewPCG(uint64(version), 15))}, &tls.Config{InsecureSkipVerify: true, MaxVersion: version})
	var writer sync.WaitGroup
	writer.Go(func() {
		for sent = wire; len(sent) > 0; {
			k := min(len(sent), 1+rnd.IntN(40_000))
			if _, err := client.Write(sent[:k]); err != nil {
				return
			}
			sent = sent[k:]
		}
	})
	got := make([]byte, len(wire))
	n, err := io.ReadFull(client, got)
	if err != nil || !bytes.Equal(got, wire) {
		t.Errorf("%s: %d of %d bytes came back, %v; the same: %v", tls.VersionName(version), n, len(wire), err, bytes.Equal(got, wire))
	}
	raw.Close()
	writer.Wait()
}

// someFrames returns frames that c can send, of all sorts of lengths, and without its delimiters.
func someFrames(c codec.Codec, rnd *rand.Rand) (frames [][]byte) {
	lengths := []int{0, 1, 2, 63, 64, 1000, 16383, 16384, 16385, 65_000}
	for range 100 {
		lengths = append(lengths, rnd.IntN(3000))
	}
	for _, n := range lengths {
		if f, ok := c.(codec.Fixed); ok {
			n = f.Size
		}
		if n == 0 && c == (codec.Raw{}) {
			continue
		}
		f := make([]byte, n)
		for i := range f {
			f[i] = byte('c' + rnd.IntN(20))
		}
		frames = append(frames, f)
	}
	return frames
}
