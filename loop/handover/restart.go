//go:build unix

package handover

import (
	"cmp"
	"fmt"
	"io"
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

// notifyTimeout is for how long a process that has become ready waits for the service manager.
const notifyTimeout = 5 * time.Second

// startDir is the directory that relative paths in os.Args refer to.
var startDir, _ = os.Getwd()

// A child is the successor that this process has started.
type child struct {
	mu         sync.Mutex
	cmd        *exec.Cmd // nil: there is none, or it lives on its own; only otherwise it may be killed
	began      time.Time
	stage      childStage
	impatience *time.Timer // kills it: see losePatience
}

type childStage uint8

const (
	starting childStage = iota
	opened              // it has said hello here; its handover is under way, or it asks again
	useless             // its handover has failed, and it has got nothing
)

// opens notes that process pid has said hello.
func (c *child) opens(pid int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.is(pid) {
		c.stage = opened
	}
}

// fails notes that the handover to process pid has failed. If it has got something it drains that;
// otherwise the next signal kills it, or its impatience. One that hangs is killed now.
func (c *child) fails(pid int, gotSome, hangs bool, startTimeout time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case !c.is(pid):
	case gotSome:
		c.forget()
	default:
		if c.stage = useless; hangs {
			_ = c.cmd.Process.Kill()
		}
		c.impatience.Reset(startTimeout)
	}
}

// retires notes that another process is in charge, which may be the child, by way of a third one.
func (c *child) retires() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cmd != nil {
		c.forget()
	}
}

func (c *child) forget() {
	c.impatience.Stop()
	c.cmd = nil
}

func (c *child) is(pid int) bool { return c.cmd != nil && c.cmd.Process.Pid == pid }

// RestartOn starts the program's file again at each of the signals, such as SIGHUP, with the
// arguments and the environment of this process, in the directory that it was started in. The file
// may be a newer version by then. The new process takes over by itself. It is killed if it does not
// call Open within Config.StartTimeout, is not ready within the same time after Open, does not end
// within that time after its handover has failed, or waits as long for a State's method. If its
// handover has failed, or it has not called Open within 5 s, the next signal kills it at once and
// starts another.
//
// When Run's context is done a signal starts nothing, and a new process that has not taken over is
// killed. Close stops listening for the signals, which then have their usual effect. RestartOn
// returns at once. Call it once, and before Ready: until then the signal kills this process, which
// may be in charge already. A signal that comes while the next process is starting or taking over
// is dropped; the log warns. On systems other than unix RestartOn does nothing.
func (h *Handover) RestartOn(signals ...os.Signal) {
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, signals...)
	go func() {
		defer signal.Stop(asked) // not in a drain, which the next signal would end
		for {
			select {
			case <-asked:
				h.restart()
			case <-h.closed:
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
	if isClosed(h.quit) || isClosed(h.retired) { // with mu: endChild finds what was started before
		h.log(func() { h.srv.Logger.Warn().Msg("handover: this process is ending and starts no other") })
		return
	}
	if c.cmd != nil {
		pid := c.cmd.Process.Pid
		if c.stage == opened || c.stage == starting && time.Since(c.began) < startGrace {
			h.log(func() { h.srv.Logger.Warn().Int("pid", pid).Msg("handover: the next process is already running") })
			return
		}
		_ = c.cmd.Process.Kill()
		h.log(func() {
			h.srv.Logger.Warn().Int("pid", pid).Msg("handover: the next process does not take over: killing it and starting another")
		})
		c.forget()
	}
	if _, err := os.Stat(h.cfg.Path); err != nil && h.door != nil {
		err = fmt.Errorf("it would not find this one at Config.Path: %w: end this process, then start another", err)
		h.log(func() { h.srv.Logger.Error().Err(err).Msg("handover: cannot start the next process") })
		return
	}
	next := exec.Command(os.Args[0], os.Args[1:]...)
	if _, err := os.Stat(startDir); err == nil {
		next.Dir = startDir
	}
	next.Stdin, next.Stdout, next.Stderr = os.Stdin, os.Stdout, os.Stderr
	h.freeReserve() // to start it takes some descriptors
	err := next.Start()
	if h.fillReserve(); err != nil {
		h.log(func() { h.srv.Logger.Error().Err(err).Msg("handover: cannot start the next process") })
		return
	}
	c.cmd, c.began, c.stage = next, time.Now(), starting
	c.impatience = time.AfterFunc(h.cfg.StartTimeout, func() { h.losePatience(next) })
	go func() {
		err := next.Wait() // it outlives this process, or has failed
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.cmd == next {
			c.forget()
		}
		if err != nil {
			h.log(func() {
				h.srv.Logger.Error().Err(err).Int("pid", next.Process.Pid).Msg("handover: the next process has failed")
			})
		} else {
			h.log(func() {
				h.srv.Logger.Info().Int("pid", next.Process.Pid).Msg("handover: the next process has ended")
			})
		}
	}()
}

// losePatience kills a next process that nothing comes of: StartTimeout after its start, or after
// its handover has failed. One whose handover is under way, or that waits for the handover to
// another one, has its time.
func (h *Handover) losePatience(next *exec.Cmd) {
	h.mu.Lock()
	g := h.giving
	h.mu.Unlock()
	c := &h.child
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cmd != next {
		return
	}
	why := "handover: the next process did not call Open within StartTimeout: killing it"
	switch c.stage {
	case useless:
		why = "handover: the next process did not end within StartTimeout after its handover had failed: killing it"
	case opened:
		rest := h.cfg.StartTimeout
		if g != nil && isClosed(g.done) {
			rest -= time.Since(g.over)
		}
		if rest > 0 {
			c.impatience.Reset(rest)
			return
		}
		why = "handover: the next process waits for a State's method that does not return: killing it"
	}
	_ = next.Process.Kill()
	h.log(func() {
		h.srv.Logger.Error().Int("pid", next.Process.Pid).Msg(why)
	})
}

// endChild kills the process that was started and has not taken over, as this one ends: it would
// find nobody to take over from, and serve on its own.
func (h *Handover) endChild() {
	c := &h.child
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cmd == nil {
		return
	}
	pid := c.cmd.Process.Pid
	_ = c.cmd.Process.Kill()
	h.log(func() {
		h.srv.Logger.Warn().Int("pid", pid).Msg("handover: this process is ending: killing the next one, which has not taken over")
	})
}

// notify tells systemd, if that asks, that this process is the service's main process and ready,
// and waits until it has heard that (sd_notify, with BARRIER), but not for longer than
// notifyTimeout.
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
	late := time.Now().Add(notifyTimeout)
	_ = nc.SetDeadline(late) // it may not read
	if _, err := fmt.Fprintf(nc, "MAINPID=%d\nREADY=1", os.Getpid()); err != nil {
		return err
	}
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	err = sockets.With(w, func(barrier int) error { return sendBarrier(nc, barrier) })
	if _ = w.Close(); err != nil {
		return err
	}
	_ = r.SetReadDeadline(late)
	if _, err = r.Read(make([]byte, 1)); err != io.EOF { // systemd closes its end
		return fmt.Errorf("it has not answered BARRIER=1 in %v: %w", notifyTimeout, err)
	}
	return nil
}

// sendBarrier does what WriteMsgUnix refuses to do on a connected socket for datagrams.
func sendBarrier(nc *net.UnixConn, barrier int) error {
	rc, err := nc.SyscallConn()
	if err != nil {
		return err
	}
	late := rc.Write(func(fd uintptr) bool {
		err = unix.Sendmsg(int(fd), []byte("BARRIER=1"), unix.UnixRights(barrier), nil, 0)
		return err != unix.EAGAIN
	})
	return cmp.Or(late, err)
}
