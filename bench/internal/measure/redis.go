//go:build linux

package measure

import (
	"fmt"
	"net"
	"os/exec"
	"syscall"
	"time"
)

// Redis is a redis-server that keeps nothing on disk.
type Redis struct {
	Addr string
	cmd  *exec.Cmd
}

// StartRedis needs the program redis-server.
func StartRedis() (*Redis, error) {
	addr, err := FreeAddr()
	if err != nil {
		return nil, err
	}
	_, port, _ := net.SplitHostPort(addr)
	r := &Redis{addr, exec.Command("redis-server", "--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no")}
	r.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := r.cmd.Start(); err != nil {
		return nil, fmt.Errorf("%w (apt-get install redis-server)", err)
	}
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if c, err := net.Dial("tcp", addr); err == nil {
			_ = c.Close()
			return r, nil
		}
	}
	r.Stop()
	return nil, fmt.Errorf("redis-server does not listen at %s", addr)
}

// CPU is the time that it has run so far, 0 for the zero Redis.
func (r *Redis) CPU() time.Duration {
	if r.cmd == nil {
		return 0
	}
	return CPU(r.cmd.Process.Pid)
}

// Stop ends it.
func (r *Redis) Stop() {
	_ = r.cmd.Process.Kill()
	_ = r.cmd.Wait()
}
