//go:build unix

package handover

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/loopwheel/loopwheel/loop/internal/sockets"
)

// startGrace is for how long another signal does not end the next process.
const startGrace = 5 * time.Second

// A child is the successor that this process has started.
type child struct {
	mu    sync.Mutex
	cmd   *exec.Cmd // nil: there is none
	began time.Time
	hello bool // it has been here
}

// saidHello notes that process pid was here.
func (c *child) saidHello(pid int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cmd != nil && c.cmd.Process.Pid == pid {
		c.hello = true
	}
}

// RestartOn starts the program's file again at each of the signals, such as SIGHUP, with the
// arguments and the environment of this process. The file may be a newer version by then. The new
// process takes over by itself. It is killed if it does not call Open within Config.StartTimeout.
// Until it calls Open, another signal at least 5 s after its start kills it and starts another.
// RestartOn returns at once. Call it once.
func (h *Handover) RestartOn(signals ...os.Signal) {
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, signals...)
	go func() {
		for {
			select {
			case <-asked:
				h.restart()
			case <-h.retired:
				return
			}
		}
	}()
}

// restart starts the next process.
func (h *Handover) restart() {
	c := &h.child
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cmd != nil {
		if c.hello || time.Since(c.began) < startGrace {
			h.srv.Logger.Warn().Int("pid", c.cmd.Process.Pid).Msg("handover: the next process is already running")
			return
		}
		h.srv.Logger.Warn().Int("pid", c.cmd.Process.Pid).Msg("handover: the next process has not called Open yet: killing it and starting another")
		_ = c.cmd.Process.Kill()
	}
	next := exec.Command(os.Args[0], os.Args[1:]...)
	next.Stdin, next.Stdout, next.Stderr = os.Stdin, os.Stdout, os.Stderr
	if err := next.Start(); err != nil {
		h.srv.Logger.Error().Err(err).Msg("handover: cannot start the next process")
		c.cmd = nil
		return
	}
	c.cmd, c.began, c.hello = next, time.Now(), false
	impatience := time.AfterFunc(h.cfg.StartTimeout, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.cmd == next && !c.hello {
			h.srv.Logger.Error().Int("pid", next.Process.Pid).Msg("handover: the next process did not call Open within StartTimeout: killing it")
			_ = next.Process.Kill()
		}
	})
	go func() {
		err := next.Wait() // it outlives this process, or has failed
		impatience.Stop()
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.cmd == next {
			c.cmd = nil
		}
		h.srv.Logger.Error().Err(err).Int("pid", next.Process.Pid).Msg("handover: the next process has ended")
	}()
}

// notify tells systemd, if that asks, that this process is the service's main process and ready,
// and waits until it has heard that (sd_notify, with BARRIER).
func notify() error {
	path := os.Getenv("NOTIFY_SOCKET")
	if path == "" {
		return nil
	}
	if strings.HasPrefix(path, "@") {
		path = "\x00" + path[1:]
	}
	nc, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Net: "unixgram", Name: path})
	if err != nil {
		return err
	}
	defer nc.Close()
	if _, err := fmt.Fprintf(nc, "MAINPID=%d\nREADY=1", os.Getpid()); err != nil {
		return err
	}
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	err = sockets.With(w, func(barrier int) error {
		return sockets.With(nc, func(fd int) error { // WriteMsgUnix refuses a connected socket for datagrams
			return unix.Sendmsg(fd, []byte("BARRIER=1"), unix.UnixRights(barrier), nil, 0)
		})
	})
	_ = w.Close()
	if err != nil {
		return err
	}
	_ = r.SetReadDeadline(time.Now().Add(5 * time.Second))
	_, _ = r.Read(make([]byte, 1)) // systemd closes its end
	return nil
}
