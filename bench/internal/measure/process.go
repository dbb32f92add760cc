//go:build linux

// Package measure is what the commands of this module share: servers in processes of their own,
// what these have used, statistics, and tables.
package measure

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"io"
	"iter"
	"log"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// patience is how long a process may take for an answer.
var patience = time.Minute

// ErrStuck is the error of a process that did not answer within a minute, and was killed.
var ErrStuck = errors.New("it does not answer, and was killed")

// A Process is a program that is measured, or that loads one. It prints its address, or another
// line, when it is ready. It answers each line of input by a line, and ends when its input does.
type Process struct {
	Name string
	Addr string // its first line

	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

// Self starts this program once more with other arguments, and with procs threads that run Go code;
// 0 leaves that to the environment. See Start.
func Self(name string, procs int, args ...string) (*Process, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(exe, args...)
	if procs > 0 {
		cmd.Env = append(os.Environ(), fmt.Sprintf("GOMAXPROCS=%d", procs))
	}
	return Start(name, cmd)
}

// Start starts a program and waits for its first line. What it writes to standard error appears on
// this program's. It ends with this program at the latest.
func Start(name string, cmd *exec.Cmd) (p *Process, err error) {
	p = &Process{Name: name, cmd: cmd}
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if p.in, err = cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.out = bufio.NewReader(out)
	runtime.LockOSThread() // the kernel takes the end of this thread for that of this program
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if p.Addr, err = p.Line(); err != nil {
		p.End()
		return nil, fmt.Errorf("it does not start: %w", err)
	}
	return p, nil
}

// Line waits for a line of output, and returns it without white space around it.
func (p *Process) Line() (line string, err error) {
	late := time.AfterFunc(patience, func() { _ = p.cmd.Process.Kill() })
	line, err = p.out.ReadString('\n')
	if !late.Stop() {
		err = ErrStuck
	}
	if err != nil {
		return "", fmt.Errorf("%s: %w", p.Name, err)
	}
	return strings.TrimSpace(line), nil
}

// Ask writes a line, and waits for the answer.
func (p *Process) Ask(line string) (answer string, err error) {
	if _, err = io.WriteString(p.in, line+"\n"); err != nil {
		return "", fmt.Errorf("%s: %w", p.Name, err)
	}
	return p.Line()
}

// Pid is the process's number.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// CPU is the time that the process has run so far, in the kernel too.
func (p *Process) CPU() time.Duration { return CPU(p.Pid()) }

// Resident is the process's memory, in bytes.
func (p *Process) Resident() int { return Resident(p.Pid()) }

// End ends the process: by the end of its input and a signal, and after five seconds by another.
func (p *Process) End() {
	_ = p.in.Close()
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	late := time.AfterFunc(5*time.Second, func() { _ = p.cmd.Process.Kill() })
	defer late.Stop()
	_ = p.cmd.Wait()
}

// CPU is the time that a process has run so far, in the kernel too: by its CPU clock, which is
// exact to a nanosecond. A process that has ended has 0.
func CPU(pid int) time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|2), &t); err != nil { // 2: time of all its threads
		return 0
	}
	return time.Duration(t.Nano())
}

// Resident is the memory of a process, in bytes.
func Resident(pid int) int {
	var pages, resident int
	if statm, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid)); err == nil {
		_, _ = fmt.Sscan(string(statm), &pages, &resident)
	}
	return resident * os.Getpagesize()
}

// Obey is the other side of Ask: it answers each line of this process's input by what answer
// returns for it, and ends the process with its input. Before it answers "gc" it collects all
// garbage and gives the memory back. A nil answer says nothing else.
func Obey(answer func(line string) string) {
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		if in.Text() == "gc" {
			runtime.GC()
			debug.FreeOSMemory()
		}
		said := ""
		if answer != nil {
			said = answer(in.Text())
		}
		fmt.Println(said)
	}
	os.Exit(0)
}

// Begin starts the messages of log with the command's name.
func Begin(command string) {
	log.SetFlags(0)
	log.SetPrefix(command + ": ")
}

// Check ends the program by an error.
func Check(err error) {
	if err != nil {
		Progress("")
		log.Fatal(err)
	}
}

// Preset sets flags, but for those that are on the command line, which flags has parsed.
func Preset(flags *flag.FlagSet, values map[string]string) {
	given := make(map[string]bool)
	flags.Visit(func(f *flag.Flag) { given[f.Name] = true })
	for name, value := range values {
		if !given[name] {
			Check(flags.Set(name, value))
		}
	}
}

// Turns yields each of all in each round, in the round's order: nobody is always the first.
func Turns[T any](rounds int, all []T) iter.Seq2[int, T] {
	return func(yield func(int, T) bool) {
		for round := range rounds {
			for i := range all {
				if !yield(round, all[(i+round)%len(all)]) {
					return
				}
			}
		}
	}
}
