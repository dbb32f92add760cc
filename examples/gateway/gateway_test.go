package main

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/codec/codectest"
	"github.com/loopwheel/loopwheel/handler"
	"github.com/loopwheel/loopwheel/loop/looptest"
)

func TestCodec(t *testing.T) {
	codectest.Suite{
		New:     func() codec.Codec { return frames{} },
		Samples: [][]byte{message(login, 0, nil), message(report, 0, []byte("21 degrees")), message(answer, 65535, []byte{0xA5})},
		Max:     headSize + maxPayload,
		Fill: func(n int) []byte {
			if n < headSize {
				return nil // a message has at least its head
			}
			return bytes.Repeat([]byte{report}, n)
		},
		TooLong:   [][]byte{{frameStart, 0xff, 0xff}},
		Malformed: [][]byte{[]byte("GET / HTTP/1.1"), {frameStart, 0, 0}, []byte("\xa5\x00\x03P\x00\x00\xde\xad\xbe\xef")},
	}.Run(t)
}

// A rig is a gateway in memory and in virtual time.
type rig struct {
	t *testing.T
	*gateway
	srv *looptest.Server
}

func newRig(t *testing.T) *rig {
	g := &gateway{key: []byte("secret"), devices: handler.NewRegistry[string]()}
	return &rig{t, g, looptest.Start(t, g.server("", 0, zerolog.Nop()))}
}

// A device is the other end of a connection.
type device struct{ *looptest.Peer }

func (d device) send(kind byte, id uint16, payload string) {
	frame, err := frames{}.AppendFrame(nil, message(kind, id, []byte(payload)))
	if err != nil {
		panic(err)
	}
	d.Send(string(frame))
}

func (d device) login(name string) {
	d.send(login, 0, token(name)+name)
}

func token(name string) string {
	mac := hmac.New(sha256.New, []byte("secret"))
	mac.Write([]byte(name))
	return string(mac.Sum(nil))
}

// got returns what has come since it was called last, as "C1 text P0 ".
func (d device) got() (all string) {
	data := []byte(d.Received())
	for len(data) > 0 {
		n, msg, err := frames{}.Decode(data)
		if n == 0 || err != nil {
			panic(err)
		}
		kind, id, payload := split(msg)
		all += fmt.Sprintf("%c%d%s ", kind, id, payload)
		data = data[n:]
	}
	return all
}

// connect opens a connection and logs in.
func (r *rig) connect(name string) device {
	d := device{r.srv.Open()}
	d.login(name)
	if got := d.got(); !strings.HasPrefix(got, "L0 ") {
		r.t.Errorf("%s logs in, and gets %q", name, got)
	} else if rest := strings.TrimPrefix(got, "L0 "); rest != "" {
		r.t.Errorf("%s has logged in, and gets %q", name, rest)
	}
	return d
}

// post begins a request, and returns where its answer comes: the status, the body, and how long it
// took.
func (r *rig) post(path, body string) <-chan string {
	done, began := make(chan string, 1), time.Now()
	go func() {
		w := httptest.NewRecorder()
		r.api().ServeHTTP(w, httptest.NewRequest(http.MethodPost, "http://localhost"+path, strings.NewReader(body)))
		done <- fmt.Sprintf("%d %s after %v", w.Code, strings.TrimSpace(w.Body.String()), time.Since(began))
	}()
	synctest.Wait()
	return done
}

func (r *rig) want(answer <-chan string, want string) {
	r.t.Helper()
	select {
	case got := <-answer:
		if !strings.Contains(got, want) {
			r.t.Errorf("the answer is %q, want %q", got, want)
		}
	default:
		r.t.Errorf("no answer, want %q", want)
	}
}

func TestLogin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		silent, forged, early, short := device{r.srv.Open()}, device{r.srv.Open()}, device{r.srv.Open()}, device{r.srv.Open()}
		forged.send(login, 0, strings.Repeat("x", tokenSize)+"lamp")
		early.send(report, 0, "21")
		short.send(login, 0, "lamp")
		for peer, want := range map[device]error{forged: errToken, early: errNoLogin, short: errToken} {
			if !errors.Is(peer.Reason(), want) {
				t.Errorf("closed with %v, want %v", peer.Reason(), want)
			}
		}
		r.srv.Sleep(loginWithin - time.Millisecond)
		if silent.Closed() {
			t.Error("closed early")
		}
		lamp := r.connect("lamp")
		r.srv.Sleep(time.Second)
		if !errors.Is(silent.Reason(), errNoLogin) || lamp.Closed() {
			t.Errorf("closed with %v; logged in: %v", silent.Reason(), lamp.Reason())
		}
		lamp.login("lamp")
		if !errors.Is(lamp.Reason(), errKind) {
			t.Errorf("a second login: %v", lamp.Reason())
		}
	})
}

// A device that comes back before its old connection has ended is found at the new one.
func TestLoginAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		before, after := r.connect("lamp"), r.connect("lamp")
		if !errors.Is(before.Reason(), errElsewhere) {
			t.Errorf("the old connection: %v", before.Reason())
		}
		r.post("/devices/lamp/command", "on")
		if got := after.got(); got != "C1on " {
			t.Errorf("got %q", got)
		}
	})
}

func TestHeartbeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		dead, alive, talks := r.connect("dead"), r.connect("alive"), r.connect("talks")
		for range 4 {
			r.srv.Sleep(pingAfter / 2)
			talks.send(report, 0, "21")
			r.srv.Sleep(pingAfter / 2)
			talks.send(report, 0, "22")
			if got := alive.got(); got != "P0 " {
				t.Errorf("got %q, want a ping", got)
			}
			alive.send(pong, 0, "")
		}
		if !errors.Is(dead.Reason(), handler.ErrHeartbeat) || alive.Closed() || talks.Closed() || talks.got() != "" {
			t.Errorf("dead: %v, alive: %v, talks: %v", dead.Reason(), alive.Reason(), talks.Reason())
		}
	})
}

func TestCommand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		lamp := r.connect("lamp")
		first, second := r.post("/devices/lamp/command", "on"), r.post("/devices/lamp/command", "off")
		if got := lamp.got(); got != "C1on C2off " {
			t.Errorf("got %q", got)
		}
		r.srv.Sleep(time.Second)
		lamp.send(answer, 2, "is off")
		lamp.send(answer, 7, "to nothing")
		lamp.send(answer, 1, "is on")
		r.want(first, "200 is on after 1s")
		r.want(second, "200 is off after 1s")
		r.want(r.post("/devices/door/command", "open"), "404 ")
		r.want(r.post("/devices/lamp/command", strings.Repeat("x", maxPayload+1)), "413 ")
	})
}

// A request waits for as long as a command may take, but not longer than the device is there.
func TestCommandWithoutAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		lamp := r.connect("lamp")
		late := r.post("/devices/lamp/command", "on")
		r.srv.Sleep(commandTimeout)
		r.want(late, "504 ")
		lamp.send(answer, 1, "is on")
		gone := r.post("/devices/lamp/command", "off")
		r.srv.Sleep(time.Second)
		lamp.Close()
		r.want(gone, "after 1s")
		r.want(r.post("/devices/lamp/command", "on"), "404 ")
	})
}

func TestKeptMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		for i := range maxKept {
			r.want(r.post("/devices/lamp/message", fmt.Sprint("m", i)), "200 ")
		}
		r.want(r.post("/devices/lamp/message", "one more"), "507 ")
		r.want(r.post("/devices/door/message", "for another"), "200 ")
		lamp := device{r.srv.Open()}
		lamp.login("lamp")
		if got := lamp.got(); got != "L0 C1m0 " {
			t.Errorf("at login it gets %q", got)
		}
		lamp.send(answer, 1, "")
		if got := lamp.got(); got != "C2m1 " {
			t.Errorf("then it gets %q", got)
		}
		lamp.Hangup() // before it has answered
		lamp = device{r.srv.Open()}
		lamp.login("lamp")
		for i := 1; i < maxKept; i++ {
			if got, want := strings.TrimPrefix(lamp.got(), "L0 "), fmt.Sprintf("C%dm%d ", i, i); got != want {
				t.Fatalf("got %q, want %q", got, want)
			}
			lamp.send(answer, uint16(i), "")
		}
		r.post("/devices/lamp/message", "now")
		if got := lamp.got(); got != "C100now " {
			t.Errorf("connected, it gets %q", got)
		}
		r.srv.Sleep(commandTimeout)
		if !errors.Is(lamp.Reason(), handler.ErrCallTimeout) || len(r.outbox.kept["lamp"]) != 1 || len(r.outbox.kept["door"]) != 1 {
			t.Errorf("without an answer: %v, and what is kept is %v", lamp.Reason(), r.outbox.kept)
		}
	})
}

func TestListDevices(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		list := func() string {
			w := httptest.NewRecorder()
			r.api().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "http://localhost/devices", nil))
			return strings.TrimSpace(w.Body.String())
		}
		if got := list(); got != "[]" {
			t.Errorf("no devices: %s", got)
		}
		lamp := r.connect("lamp")
		if got := list(); got != `["lamp"]` {
			t.Errorf("one: %s", got)
		}
		lamp.Close()
		if got := list(); got != "[]" {
			t.Errorf("none any more: %s", got)
		}
	})
}

// Frames that are broken close the connection, and a frame must end within its time.
func TestBrokenFrames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		broken, slow := r.connect("broken"), r.connect("slow")
		broken.Send("\xa5\x00\x03R\x00\x00\x00\x00\x00\x00")
		if !errors.Is(broken.Reason(), codec.ErrMalformed) {
			t.Errorf("a wrong checksum: %v", broken.Reason())
		}
		slow.Send("\xa5\x00\x10R")
		r.srv.Sleep(frameWithin + time.Second)
		if slow.Reason() == nil || errors.Is(slow.Reason(), io.EOF) {
			t.Errorf("half a frame: %v", slow.Reason())
		}
	})
}

// The same by TLS.
func TestTLS(t *testing.T) {
	if cfg, err := tlsConfig("", ""); err != nil || cfg != nil {
		t.Errorf("without flags: %v, %v", cfg, err)
	}
	for _, files := range [][2]string{{"cert.pem", ""}, {"", "key.pem"}, {"none.pem", "none.pem"}} {
		if _, err := tlsConfig(files[0], files[1]); err == nil {
			t.Errorf("%q is taken", files)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		g := &gateway{key: []byte("secret"), devices: handler.NewRegistry[string]()}
		server := g.server("", 0, zerolog.Nop())
		server.TLS = &tls.Config{Certificates: []tls.Certificate{looptest.Certificate("localhost")}}
		srv := looptest.Start(t, server)
		lamp := device{srv.OpenTLS(nil)}
		lamp.login("lamp")
		if got := lamp.got(); got != "L0 " {
			t.Errorf("got %q, %v", got, lamp.Reason())
		}
	})
}

// A foreign page that has given its own name our address reaches nothing: its requests name it.
func TestForeignHost(t *testing.T) {
	g := &gateway{names: []string{"api.example"}, devices: handler.NewRegistry[string]()}
	for host, want := range map[string]int{
		"127.0.0.1:7080": http.StatusOK, "[::1]:7080": http.StatusOK, "[::1]": http.StatusOK, "localhost": http.StatusOK,
		"LocalHost:7080": http.StatusOK, "API.example:80": http.StatusOK, "evil.example": http.StatusMisdirectedRequest,
		"evil.example:7080": http.StatusMisdirectedRequest, "127.0.0.1.evil.example": http.StatusMisdirectedRequest, "": http.StatusMisdirectedRequest,
	} {
		t.Run(host, func(t *testing.T) {
			w := httptest.NewRecorder()
			r := httptest.NewRequest(http.MethodGet, "/devices", nil)
			r.Host = host
			r.Header.Set("Origin", "http://"+host)
			if g.api().ServeHTTP(w, r); w.Code != want {
				t.Errorf("%d, want %d", w.Code, want)
			}
		})
	}
}

// Flags that make no sense are refused by name, and nobody runs an open gateway without saying so.
func TestFlags(t *testing.T) {
	for _, test := range []struct{ key, flag, value, want string }{
		{"secret", "open", "false", ""},
		{"", "open", "true", ""},
		{"", "open", "false", "GATEWAY_KEY"},
		{"secret", "drain", "-1s", "-drain"},
		{"secret", "http", "", "-http"},
		{"secret", "names", "A.example, b.example", ""},
		{"secret", "names", "a.example,", "-names"},
	} {
		t.Run(fmt.Sprintf("key %q -%s=%s", test.key, test.flag, test.value), func(t *testing.T) {
			t.Setenv("GATEWAY_KEY", test.key)
			before := flag.Lookup(test.flag).Value.String()
			t.Cleanup(func() { _ = flag.Set(test.flag, before) })
			if err := flag.Set(test.flag, test.value); err != nil {
				t.Fatal(err)
			}
			if err := checkFlags(); (err != nil) != (test.want != "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("%v, want an error that names %q", err, test.want)
			}
		})
	}
}
