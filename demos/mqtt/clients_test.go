package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	paho "github.com/eclipse/paho.mqtt.golang"
	"github.com/rs/zerolog"

	"github.com/loopwheel/loopwheel/codec/mqtt"
	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop"
)

// TestClients: the clients that people use talk to the broker over TCP, TLS, WebSocket, and WebSocket
// over TLS. A client that is not installed is skipped.
func TestClients(t *testing.T) {
	testkit.NeedSlow(t, "runs 24 clients")
	cert := testkit.Certificate("localhost", "127.0.0.1")
	cafile, _ := testkit.CertificateFiles(t, cert)
	secure := &tls.Config{Certificates: []tls.Certificate{cert}}
	srv := &loop.Server{Addr: "tcp://127.0.0.1:0", NumLoops: 2, Logger: zerolog.New(zerolog.NewTestWriter(t))}
	b := newBroker(Config{}, srv)
	srv.Listeners = []loop.Listener{{Addr: "tcp://127.0.0.1:0", TLS: secure}, {Addr: "tcp://127.0.0.1:0", Codec: b.webSocket()},
		{Addr: "tcp://127.0.0.1:0", TLS: secure, Codec: b.webSocket()}}
	ctx, cancel := context.WithCancel(context.Background())
	if err := b.Start(ctx); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cancel(); _ = srv.Wait() })
	for i, scheme := range []string{"mqtt", "mqtts", "ws", "wss"} {
		u := &url.URL{Scheme: scheme, Host: srv.Addrs()[i].String()}
		if strings.HasPrefix(scheme, "ws") {
			u.Path = "/mqtt"
		}
		for _, version := range []string{"4", "5"} {
			t.Run("MQTT.js "+scheme+" "+version, func(t *testing.T) {
				if _, err := os.Stat("testdata/npm/node_modules/mqtt"); err != nil {
					t.Skip(err)
				}
				prints(t, "js/x hello", "node", "testdata/echo.mjs", u.String(), cafile, version)
			})
			t.Run("Paho in Python "+scheme+" "+version, func(t *testing.T) {
				python := pythonWith(t, "paho.mqtt.client")
				transport := map[string]string{"mqtt": "tcp", "mqtts": "tcp+tls", "ws": "websockets", "wss": "websockets+tls"}[scheme]
				prints(t, "py/x hello", python, "testdata/echo.py", transport, u.Port(), cafile, version)
			})
		}
		t.Run("Paho in Go "+scheme, func(t *testing.T) { pahoGo(t, u, cert.Leaf) })
		if strings.HasPrefix(scheme, "mqtt") { // mosquitto 2.0 is no client of WebSocket, as a bridge neither
			t.Run("mosquitto's programs "+scheme, func(t *testing.T) { mosquittoPrograms(t, srv.LocalAddr().String(), u, cafile) })
			t.Run("mosquitto as a bridge "+scheme, func(t *testing.T) { bridge(t, srv.LocalAddr().String(), u, cafile) })
		}
	}
}

// prints runs a client and wants a line of it.
func prints(t *testing.T, want, program string, args ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if out, err := exec.CommandContext(ctx, program, args...).CombinedOutput(); err != nil || strings.TrimSpace(string(out)) != want {
		t.Errorf("%s %s: %v, %q; want %q", program, strings.Join(args, " "), err, out, want)
	}
}

// pythonWith returns a Python that has a module.
func pythonWith(t *testing.T, module string) string {
	t.Helper()
	for _, python := range []string{"python3", "/usr/bin/python3"} {
		if exec.Command(python, "-c", "import "+module).Run() == nil {
			return python
		}
	}
	t.Skipf("no Python has %s", module)
	return ""
}

func need(t *testing.T, program string) string {
	t.Helper()
	path, err := exec.LookPath(program)
	if err != nil {
		path, err = exec.LookPath("/usr/sbin/" + program)
	}
	if err != nil {
		t.Skip(err)
	}
	return path
}

func pahoGo(t *testing.T, u *url.URL, cert *x509.Certificate) {
	pool := x509.NewCertPool()
	pool.AddCert(cert)
	got := make(chan string, 1)
	c := paho.NewClient(paho.NewClientOptions().AddBroker(u.String()).SetClientID("go-" + u.Scheme).SetTLSConfig(&tls.Config{RootCAs: pool}))
	done := func(what string, token paho.Token) {
		t.Helper()
		if !token.WaitTimeout(20*time.Second) || token.Error() != nil {
			t.Fatalf("%s: %v", what, token.Error())
		}
	}
	done("connect", c.Connect())
	defer c.Disconnect(0)
	done("subscribe", c.Subscribe("go/+", 2, func(_ paho.Client, m paho.Message) { got <- m.Topic() + " " + string(m.Payload()) }))
	done("publish", c.Publish("go/x", 2, false, "hello"))
	if m := testkit.Receive(t, "the message", got); m != "go/x hello" {
		t.Errorf("got %q", m)
	}
}

// mosquittoPrograms publishes, subscribes, and asks itself: the answer to the request "kept" is there.
func mosquittoPrograms(t *testing.T, plain string, u *url.URL, cafile string) {
	for _, version := range []string{"311", "5"} {
		args := []string{"-h", "127.0.0.1", "-p", u.Port(), "-q", "2", "-V", version}
		if u.Scheme == "mqtts" {
			args = append(args, "--cafile", cafile)
		}
		topic := "m/" + u.Scheme + version
		prints(t, "", need(t, "mosquitto_pub"), append(args, "-t", topic, "-r", "-m", "kept")...)
		prints(t, topic+" kept", need(t, "mosquitto_sub"), append(args, "-t", topic, "-W", "20", "-C", "1", "-v")...)
		answers := mustConnect(t, plain, "answers")
		subscribe(t, answers, topic+"/ask", 0)
		go func() {
			if frame, err := answers.next(); err == nil && mqtt.TypeOf(frame) == mqtt.PUBLISH {
				m := mqtt.Publish{Topic: []byte(topic + "/answer"), Payload: []byte("yes")}
				packet, _ := m.Append(nil, mqtt.V5)
				_, _ = answers.nc.Write(packet) // without it mosquitto_rr fails
			}
		}()
		prints(t, "yes", need(t, "mosquitto_rr"), append(args, "-t", topic+"/ask", "-e", topic+"/answer", "-m", "really?", "-W", "20")...)
	}
}

func bridge(t *testing.T, plain string, u *url.URL, cafile string) {
	program := need(t, "mosquitto")
	far := testkit.FreeAddr(t)
	_, port, _ := net.SplitHostPort(far)
	// "user root": one that root has started reads bridge_cafile as another user otherwise, and cannot.
	conf := fmt.Sprintf("user root\nlistener %s 127.0.0.1\nallow_anonymous true\nconnection b%s\naddress 127.0.0.1:%s\ntopic # both 1 far/ near/\nbridge_protocol_version mqttv50\n", port, u.Scheme, u.Port())
	if u.Scheme == "mqtts" {
		conf += "bridge_cafile " + cafile + "\n"
	}
	file := filepath.Join(t.TempDir(), "mosquitto.conf")
	if err := os.WriteFile(file, []byte(conf), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var log bytes.Buffer
	cmd := exec.CommandContext(ctx, program, "-v", "-c", file)
	cmd.Stderr = &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("mosquitto: %s", &log)
		}
	})
	name, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	here := mustConnect(t, plain, "bridge-"+u.Scheme)
	subscribe(t, here, "near/x", 1)
	subscribe(t, here, "$SYS/broker/connection/"+name+".b"+u.Scheme+"/state", 1)
	if got := payload(t, here); got != "1" {
		t.Fatalf("the bridge's state is %q, want 1", got)
	}
	there := mustConnect(t, far, "far")
	subscribe(t, there, "far/y", 1)
	publish := func(p *peer, topic, text string) {
		packet, err := (&mqtt.Publish{Topic: []byte(topic), Payload: []byte(text)}).Append(nil, mqtt.V5)
		p.send(t, packet, err)
	}
	publish(there, "far/x", "from there")
	if got := payload(t, here); got != "from there" {
		t.Errorf("here arrives %q", got)
	}
	publish(here, "near/y", "from here")
	if got := payload(t, there); got != "from here" {
		t.Errorf("there arrives %q", got)
	}
}

// payload returns the payload of the next message that is not empty.
func payload(t *testing.T, p *peer) string {
	t.Helper()
	for {
		frame, err := p.next()
		if err != nil {
			t.Fatal(err)
		}
		if m, err := mqtt.ParsePublish(frame, mqtt.V5); err == nil && len(m.Payload) > 0 {
			return string(m.Payload)
		}
	}
}
