//go:build unix

package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/handover"
)

// A lamp is a device on a socket, which answers commands once it may.
type lamp struct {
	net.Conn
	answers chan struct{} // closed when it may
	mu      sync.Mutex
	got     []string
}

func newLamp(t *testing.T, name string) *lamp {
	nc, err := net.Dial("tcp", strings.TrimPrefix(*addr, "tcp://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	d := &lamp{Conn: nc, answers: make(chan struct{})}
	d.send(login, 0, token(name)+name)
	go func() {
		var in []byte
		for buf := make([]byte, 4096); ; {
			n, err := nc.Read(buf)
			if err != nil {
				return
			}
			in = append(in, buf[:n]...)
			for n, msg, _ := (frames{}).Decode(in); n > 0; n, msg, _ = (frames{}).Decode(in) {
				kind, id, payload := split(msg)
				d.mu.Lock()
				d.got = append(d.got, fmt.Sprintf("%c%s", kind, payload))
				d.mu.Unlock()
				if in = in[n:]; kind == command {
					<-d.answers
					d.send(answer, id, "done")
				}
			}
		}
	}()
	d.waitFor(t, "L")
	return d
}

func (d *lamp) send(kind byte, id uint16, payload string) {
	frame, _ := frames{}.AppendFrame(nil, message(kind, id, []byte(payload)))
	_, _ = d.Write(frame)
}

func (d *lamp) waitFor(t *testing.T, what string) {
	t.Helper()
	eventually(t, what, func() bool {
		d.mu.Lock()
		defer d.mu.Unlock()
		return slices.Contains(d.got, what)
	})
}

// A message that was acknowledged arrives, though one process after the other takes over while
// another device owes an answer; a device that comes back meanwhile is found at its new connection;
// and a handover that fails changes no answer.
func TestHandover(t *testing.T) {
	t.Setenv("GATEWAY_KEY", "secret")
	before := []any{*addr, *apiAddr, *meet, *drain}
	t.Cleanup(func() {
		*addr, *apiAddr, *meet, *drain = before[0].(string), before[1].(string), before[2].(string), before[3].(time.Duration)
	})
	*addr, *apiAddr, *meet, *drain = "tcp://"+freeAddr(t), freeAddr(t), filepath.Join(t.TempDir(), "s"), 50*time.Millisecond
	post := func(path, body string) int {
		res, err := http.Post("http://"+*apiAddr+"/devices/"+path, "", strings.NewReader(body))
		if err != nil {
			return 0
		}
		defer res.Body.Close()
		return res.StatusCode
	}
	start := func() (ended chan error) {
		ended = make(chan error, 1)
		go func() { ended <- run(t.Context()) }()
		return ended
	}
	old := start()
	eventually(t, "the API answers", func() bool { return post("nobody/command", "x") == http.StatusNotFound })
	a, b := newLamp(t, "a"), newLamp(t, "b")
	close(a.answers)
	commanded := make(chan int, 1)
	go func() { commanded <- post("b/command", "open") }()
	b.waitFor(t, "Copen")

	none := &loop.Server{Addr: *addr, Accept: func(*loop.Conn) loop.Handler { return nil }}
	h, err := handover.Open(t.Context(), none, handover.Config{Path: *meet, Service: "gateway"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.Ready(t.Context()); err == nil {
		t.Error("a process that does not know the State takes over")
	}
	_ = h.Close()
	eventually(t, "an unknown device is not found, as before", func() bool { return post("nobody/command", "x") == http.StatusNotFound })

	var sent atomic.Int64
	stop, posted := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(posted)
		for {
			select {
			case <-stop:
				return
			default:
			}
			if post("a/message", fmt.Sprint(sent.Load())) == http.StatusOK {
				sent.Add(1)
			}
		}
	}()
	isSending := func() {
		t.Helper()
		more := sent.Load() + 20
		eventually(t, "messages are sent", func() bool { return sent.Load() > more })
	}
	isSending()
	if code := post("away/message", "kept"); code != http.StatusOK {
		t.Errorf("a message for a device that is away is answered with %d", code)
	}
	next := start()
	eventually(t, "the next process is asked, and does not have b", func() bool {
		res, err := http.Get("http://" + *apiAddr + "/devices")
		if err != nil {
			return false
		}
		defer res.Body.Close()
		names, err := io.ReadAll(res.Body)
		return err == nil && string(names) == `["a"]`+"\n"
	})
	eventually(t, "it keeps messages", func() bool { return post("b/message", "later") == http.StatusOK })
	isSending()
	again := newLamp(t, "b") // its first connection owes an answer, and has stayed
	close(again.answers)
	again.waitFor(t, "Clater")
	close(b.answers)
	if code := receive(t, "the answer of b", commanded); code != http.StatusOK {
		t.Errorf("the command of before is answered with %d", code)
	}
	if err := receive(t, "the end of the old process", old); err != nil {
		t.Errorf("the old process ends with %v", err)
	}
	isSending()
	close(stop)
	<-posted
	for n := range sent.Load() {
		a.waitFor(t, fmt.Sprintf("C%d", n))
	}
	if code := post("b/command", "now"); code != http.StatusOK {
		t.Errorf("the device that came back answers with %d", code)
	}
	again.waitFor(t, "Cnow")
	away := newLamp(t, "away")
	close(away.answers)
	away.waitFor(t, "Ckept")
	select {
	case err := <-next:
		t.Errorf("the next process ends with %v", err)
	default:
	}
}

// eventually waits until ok.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("after 20 s it is not so that %s", what)
		}
	}
}

// receive waits for a value.
func receive[T any](t *testing.T, what string, from <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-from:
	case <-time.After(20 * time.Second):
		t.Fatalf("%s does not come", what)
	}
	return v
}

// freeAddr returns an address where nobody listens.
func freeAddr(t *testing.T) string {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return ln.Addr().String()
}
