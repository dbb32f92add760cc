package redisgroup_test

import (
	"os/exec"
	"syscall"
)

// tie makes a process that is about to start end with this one, even if that is killed.
func tie(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
