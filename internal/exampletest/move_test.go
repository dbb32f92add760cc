//go:build unix

package exampletest

import (
	"net"
	"net/http"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop/handover"
)

// startWithLamp starts the gateway, and logs a device in.
func startWithLamp(t *testing.T) (*restarting, net.Conn) {
	p := startRestarting(t, "tcp")
	device, err := p.dial()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { device.Close() })
	_ = device.SetDeadline(time.Now().Add(testkit.Patience))
	exchange(t, device, string(login("lamp")), string(loggedIn))
	return p, device
}

// api returns where the newest process takes commands.
func (p *restarting) api() string {
	urls := regexp.MustCompile(`commands on (http://\S+)`).FindAllStringSubmatch(p.said(), -1)
	return urls[len(urls)-1][1]
}

// A device of examples/gateway stays connected while the program is replaced: it does not log in
// again, and commands reach it.
func TestDeviceStaysOverARestart(t *testing.T) {
	p, device := startWithLamp(t)
	for range 3 {
		p.restart(t)
		answer := command(p.api(), "lamp")
		exchange(t, device, "", string(frame('C', 1, []byte("on"))))
		exchange(t, device, string(frame('A', 1, []byte("done"))), "")
		if got, want := testkit.Receive(t, "the answer", answer), "200 done"; got != want {
			t.Fatalf("the request gets %q, want %q", got, want)
		}
	}
	if notTaken := handover.ErrNotTaken.Error(); strings.Contains(p.said(), notTaken) {
		t.Errorf("got a line with %q, want none: copies of the connection are no news", notTaken)
	}
}

// A request that waits for a device when the program is replaced gets the device's answer.
func TestCommandUnderWayOverARestart(t *testing.T) {
	p, device := startWithLamp(t)
	answer := command(p.api(), "lamp")
	exchange(t, device, "", string(frame('C', 1, []byte("on"))))
	_ = syscall.Kill(p.pid(), syscall.SIGHUP)
	testkit.Eventually(t, "a new process has taken over", func() bool { return strings.Contains(p.said(), "has taken over") })
	exchange(t, device, string(frame('A', 1, []byte("is on"))), "")
	if got, want := testkit.Receive(t, "the answer", answer), "200 is on"; got != want {
		t.Errorf("the request gets %q, want %q", got, want)
	}
}

// A message that was acknowledged before a restart is delivered after it, and the API is what it was:
// a device that is not there is not found.
func TestMessagesOverARestart(t *testing.T) {
	p := startRestarting(t, "tcp")
	post := func(path, body string) int {
		r, err := http.Post(p.api()+path, "text/plain", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Body.Close()
		return r.StatusCode
	}
	for _, body := range []string{"one", "two"} {
		if code := post("/door/message", body); code != http.StatusOK {
			t.Fatalf("the message is answered by %d, want 200", code)
		}
		p.restart(t)
	}
	if code := post("/lamp/command", "on"); code != http.StatusNotFound {
		t.Errorf("a command for a device that is not there is answered by %d, want 404", code)
	}
	door, err := p.dial()
	if err != nil {
		t.Fatal(err)
	}
	defer door.Close()
	_ = door.SetDeadline(time.Now().Add(testkit.Patience))
	exchange(t, door, string(login("door")), string(loggedIn)+string(frame('C', 1, []byte("one"))))
	exchange(t, door, string(frame('A', 1, nil)), string(frame('C', 2, []byte("two"))))
}
