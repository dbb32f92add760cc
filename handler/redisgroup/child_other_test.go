//go:build !linux

package redisgroup_test

import "os/exec"

// tie does nothing where a process cannot be made to end with its parent.
func tie(*exec.Cmd) {}
