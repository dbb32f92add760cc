package redistest

import (
	"os/exec"
	"syscall"
)

// Tie makes a process that is about to start end with this one, even if that is killed.
func Tie(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
