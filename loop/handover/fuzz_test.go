//go:build unix

package handover

import (
	"encoding/json"
	"net"
	"os"
	"testing"
	"time"
)

// FuzzReceive reads what another process sends: a message or an error, and no descriptor that stays
// open. A connection that can be read can be sent on.
func FuzzReceive(f *testing.F) {
	f.Add([]byte("C\x00\x00\x00\x02{}"))
	f.Add([]byte("C\x00\x00\x00\x4d" + `{"Addr":"tcp://:1","Local":{"Network":"tcp","Addr":"[::1]:1"},"Remote":{"Network":"unix"}}`))
	f.Add([]byte("C\xff\xff\xff\xff"))
	f.Add([]byte("X\x00\x00\x00\x02no"))
	f.Fuzz(func(t *testing.T, data []byte) {
		ours, theirs := pair(t)
		go func() {
			_, _ = theirs.Write(data)
			_ = theirs.Close()
		}()
		defer ours.Close()
		w := wire{ours, time.Minute}
		for {
			m, err := w.receive(kindConn, kindLetGo)
			if err != nil {
				return
			}
			m.close()
			var r record
			if json.Unmarshal(m.body, &r) != nil {
				continue
			}
			moved, err := r.moved(nil)
			if err != nil {
				continue
			}
			if _, err := json.Marshal(recordOf(moved)); err != nil {
				t.Fatalf("%+v: %v", moved, err)
			}
		}
	})
}

// pair returns the two ends of a unix socket.
func pair(t *testing.T) (a, b *net.UnixConn) {
	t.Helper()
	dir, err := os.MkdirTemp("", "pair")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: dir + "/s"})
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	if b, err = net.DialUnix("unix", nil, ln.Addr().(*net.UnixAddr)); err != nil {
		t.Fatal(err)
	}
	if a, err = ln.AcceptUnix(); err != nil {
		t.Fatal(err)
	}
	return a, b
}
