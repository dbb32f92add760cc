// Package child runs the program that calls it once more, or one like it, with another job: a
// server, or its clients.
package child

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// endTime is how long a process may take to end.
const endTime = 10 * time.Second

// A Process is a program with another job. It answers each line on its input by one on its
// output, and ends when its input does.
type Process struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

// Spawn starts this program with other arguments. What it writes to its standard error appears on
// this one's. The caller has to call End.
func Spawn(args ...string) (*Process, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return Start(exec.Command(exe, args...))
}

// Start is Spawn for a command that was prepared: of another program, or with another environment.
func Start(cmd *exec.Cmd) (*Process, error) {
	p := &Process{cmd: cmd}
	cmd.Stderr = os.Stderr
	var err error
	if p.in, err = cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.out = bufio.NewReader(out)
	return p, cmd.Start()
}

// Line waits for a line of output, and returns it without white space around it.
func (p *Process) Line() (string, error) {
	s, err := p.out.ReadString('\n')
	return strings.TrimSpace(s), err
}

// Ask writes a line of input, and waits for the answer.
func (p *Process) Ask(line string) (answer string, err error) {
	if _, err = io.WriteString(p.in, line+"\n"); err != nil {
		return "", err
	}
	return p.Line()
}

// Usage is what a process has taken so far.
type Usage struct {
	User, System time.Duration // of CPU, in hundredths of a second
	Waited       time.Duration // for a core, while it had something to do
}

// Usage asks Linux. All is 0 elsewhere.
func (p *Process) Usage() (u Usage) {
	proc := fmt.Sprintf("/proc/%d/", p.cmd.Process.Pid)
	const tick = 10 * time.Millisecond // USER_HZ
	if stat, err := os.ReadFile(proc + "stat"); err == nil {
		f := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		user, _ := strconv.Atoi(f[11])
		system, _ := strconv.Atoi(f[12])
		u.User, u.System = time.Duration(user)*tick, time.Duration(system)*tick
	}
	threads, _ := filepath.Glob(proc + "task/*/schedstat")
	for _, t := range threads {
		var ran, waited int64
		if line, err := os.ReadFile(t); err == nil {
			_, _ = fmt.Sscan(string(line), &ran, &waited)
		}
		u.Waited += time.Duration(waited)
	}
	return u
}

// End ends the input, and waits for the process, which is killed after ten seconds.
func (p *Process) End() {
	_ = p.in.Close()
	tooLong := time.AfterFunc(endTime, func() { _ = p.cmd.Process.Kill() })
	defer tooLong.Stop()
	_ = p.cmd.Wait()
}
