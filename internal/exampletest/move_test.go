//go:build unix

package exampletest

import (
	"bufio"
	"io"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"
)

// A device of examples/gateway stays connected while the program is replaced: it does not log in
// again, and commands reach it.
func TestDeviceStaysOverARestart(t *testing.T) {
	p := startRestarting(t, "tcp")
	device, err := p.dial()
	if err != nil {
		t.Fatal(err)
	}
	defer device.Close()
	_ = device.SetDeadline(time.Now().Add(time.Minute))
	exchange(t, device, string(login("lamp")), string(loggedIn))
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
		text, _ := os.ReadFile(p.log)
		urls := regexp.MustCompile(`commands on (http://\S+)`).FindAllStringSubmatch(string(text), -1)
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
