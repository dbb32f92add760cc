//go:build unix

package exampletest

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// startWithLamp starts the program, and logs a device in.
func startWithLamp(t *testing.T) (*restarting, net.Conn) {
	p := startRestarting(t, "tcp")
	device, err := p.dial()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { device.Close() })
	_ = device.SetDeadline(time.Now().Add(time.Minute))
	exchange(t, device, string(login("lamp")), string(loggedIn))
	return p, device
}

// A device of examples/gateway stays connected while the program is replaced: it does not log in
// again, and commands reach it.
func TestDeviceStaysOverARestart(t *testing.T) {
	p, device := startWithLamp(t)
	for i := range 3 {
		p.restart(t, i)
		answered := make(chan error, 1)
		go func() {
			in := bufio.NewReader(device)
			got := make([]byte, len(frame('C', 0, []byte("on"))))
			_, err := io.ReadFull(in, got)
			if err == nil {
				_, err = device.Write(frame('A', uint16(got[4])<<8|uint16(got[5]), []byte("done")))
			}
			answered <- err
		}()
		urls := regexp.MustCompile(`commands on (http://\S+)`).FindAllStringSubmatch(p.said(), -1)
		resp, err := http.Post(urls[len(urls)-1][1]+"/lamp/command", "text/plain", strings.NewReader("on"))
		if err != nil {
			t.Fatal(err)
		}
		answer, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err := <-answered; err != nil || string(answer) != "done" {
			t.Fatalf("after restart %d: %v; the answer is %d, %q", i+1, err, resp.StatusCode, answer)
		}
	}
}

// A request that waits for a device when the program is replaced gets the device's answer.
func TestCommandUnderWayOverARestart(t *testing.T) {
	p, device := startWithLamp(t)
	url := regexp.MustCompile(`commands on (http://\S+)`).FindStringSubmatch(p.said())[1]
	answer := make(chan string, 1)
	go func() {
		resp, err := http.Post(url+"/lamp/command", "text/plain", strings.NewReader("on"))
		if err != nil {
			answer <- err.Error()
			return
		}
		defer resp.Body.Close()
		body, _ := io.ReadAll(resp.Body)
		answer <- fmt.Sprint(resp.StatusCode, " ", string(body))
	}()
	exchange(t, device, "", string(frame('C', 1, []byte("on"))))
	_ = syscall.Kill(p.pid(), syscall.SIGHUP)
	for deadline := time.Now().Add(time.Minute); !strings.Contains(p.said(), "has taken over"); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("nobody takes over: %s", p.said())
		}
	}
	if _, err := device.Write(frame('A', 1, []byte("is on"))); err != nil {
		t.Fatal(err)
	}
	if got := <-answer; got != "200 is on" {
		t.Errorf("the request gets %q", got)
	}
}
